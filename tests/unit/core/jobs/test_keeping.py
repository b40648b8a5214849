"""``[keep]``: what goes of ended jobs, in which order, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.jobs.keeping import EndedJob, LogPart, surplus, surplus_logs
from elasticd.settings.keep import KeepRules
from elasticd.types import JobId

DAY = 86_400.0
ALL = KeepRules(days=0, jobs=0, bytes=0, log_bytes=0)


def job(number: int, ended: float | None, size_bytes: int = 10) -> EndedJob:
    return EndedJob(JobId(f"job-{number}"), number, ended, size_bytes)


def test_without_limits_nothing_goes() -> None:
    assert surplus([job(n, n * DAY) for n in range(50)], 9999 * DAY, ALL) == []


def test_what_ended_too_long_ago_goes_and_says_so() -> None:
    found = surplus([job(1, 0.0), job(2, 80 * DAY)], 100 * DAY, replace(ALL, days=30))
    assert [(each.job, each.reason) for each in found] == [
        ("job-1", "it ended 100 days ago ([keep] days = 30)")
    ]


def test_a_job_whose_end_nobody_knows_is_never_too_old() -> None:
    assert surplus([job(1, None)], 100 * DAY, replace(ALL, days=30)) == []
    found = surplus([job(2, None), job(1, DAY)], 100 * DAY, replace(ALL, jobs=1))
    assert [each.job for each in found] == ["job-2"]


def test_a_small_older_job_goes_before_a_large_newer_one_does() -> None:
    jobs = [job(1, 1.0, 60), job(2, 2.0, 60), job(3, 3.0, 60)]
    found = surplus(jobs, 4.0, replace(ALL, bytes=130))
    assert [each.job for each in found] == ["job-1"]


@given(
    st.lists(st.tuples(st.none() | st.floats(0, 1e9), st.integers(0, 1000)), max_size=20),
    st.integers(0, 10),
    st.integers(0, 3000),
)
def test_the_limits_hold_for_what_stays(
    drawn: list[tuple[float | None, int]], most: int, size: int
) -> None:
    jobs = [job(n, ended, size_bytes) for n, (ended, size_bytes) in enumerate(drawn)]
    gone = {each.job for each in surplus(jobs, 2e9, replace(ALL, jobs=most, bytes=size))}
    kept = [each for each in jobs if each.id not in gone]
    assert not most or len(kept) <= most
    assert not size or sum(each.size_bytes for each in kept) <= size


def test_a_log_loses_its_oldest_parts_but_none_that_is_written() -> None:
    parts = [LogPart("a", 50, True), LogPart("b", 50, False), LogPart("c", 50, False)]
    assert surplus_logs(parts, 100) == ["b"]
    assert surplus_logs(parts, 0) == []
    assert surplus_logs(parts, 10) == ["b", "c"]
