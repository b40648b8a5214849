"""``[keep]``: what goes of ended jobs, in which order, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.jobs.keeping import (
    REMOVED_AT_ONCE,
    Calendar,
    EndedJob,
    LogPart,
    in_rounds,
    surplus,
    surplus_logs,
)
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


def test_an_archive_that_several_have_counts_once() -> None:
    rules = replace(ALL, bytes=130)
    shared = [replace(job(n, float(n)), archive="a", archive_bytes=100) for n in range(3)]
    assert surplus(shared, 4.0, rules) == []
    large = replace(job(3, 3.0, 90), archive="a", archive_bytes=100)
    found = surplus([*shared, large], 4.0, rules)
    assert [each.job for each in found] == ["job-3"], "with it goes none that an older one keeps"


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


def test_many_go_in_rounds_and_none_twice() -> None:
    found = surplus([job(n, n * DAY) for n in range(150)], 150 * DAY, replace(ALL, jobs=5))
    rounds = list(in_rounds(found))
    assert [each for several in rounds for each in several] == [each.job for each in found]
    assert [len(several) for several in rounds] == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 17]


def test_a_log_loses_its_oldest_parts_but_none_that_is_written() -> None:
    parts = [LogPart("a", 50, True), LogPart("b", 50, False), LogPart("c", 50, False)]
    assert surplus_logs(parts, 100) == ["b"]
    assert surplus_logs(parts, 0) == []
    assert surplus_logs(parts, 10) == ["b", "c"]


ROUND = 600.0


def test_a_clock_that_is_a_year_ahead_for_a_minute_makes_nothing_old() -> None:
    calendar, rules, jobs = Calendar(), replace(ALL, days=30), [job(1, 100 * DAY)]
    assert calendar.look(101 * DAY, 0.0, 100 * DAY) == 101 * DAY
    wrong = 466 * DAY
    assert surplus(jobs, wrong, rules)
    assert surplus(jobs, calendar.look(wrong, ROUND, 100 * DAY), rules) == []
    assert "365 days ahead" in calendar.doubt(wrong)
    right = 101 * DAY + 2 * ROUND
    assert calendar.look(right, 2 * ROUND, 100 * DAY) == right and not calendar.doubt(right)


def test_a_daemon_that_starts_with_such_a_clock_knows_when_the_last_job_ended() -> None:
    calendar = Calendar()
    assert calendar.look(466 * DAY, 5.0, 100 * DAY) == 100 * DAY
    assert calendar.look(466 * DAY + ROUND, 5.0 + ROUND, 100 * DAY) == 100 * DAY + ROUND
    assert Calendar().look(466 * DAY, 5.0, None) == 466 * DAY, "there is nothing to remove"


def test_a_clock_that_stays_ahead_for_a_day_is_right() -> None:
    calendar, at = Calendar(), 0.0
    while calendar.look(466 * DAY + at, at, 100 * DAY) < 400 * DAY:
        at += ROUND
    assert at == DAY and not calendar.doubt(466 * DAY + at)


def test_days_of_sleep_and_a_clock_that_goes_back_are_believed_at_once() -> None:
    calendar = Calendar()
    for clock, running in ((100 * DAY, 0.0), (102.5 * DAY, 60.0), (90 * DAY, 120.0)):
        assert calendar.look(clock, running, 99 * DAY) == clock


@given(st.lists(st.tuples(st.integers(0, 5 * 86_400), st.integers(0, 1000 * 86_400)), max_size=20))
def test_it_is_never_later_than_the_clock_says_nor_jumps(
    looks: list[tuple[int, int]],
) -> None:
    calendar, running, before = Calendar(), 0.0, 0.0
    calendar.look(0.0, 0.0, None)
    for passed, clock in looks:
        running += passed
        now, was_doubted = calendar.look(clock, running, None), calendar.doubted_since
        assert now <= clock
        if was_doubted is not None:
            assert now == before + passed
        before = now
