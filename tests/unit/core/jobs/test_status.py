"""What ``status`` shows of a job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elasticd.core.jobs.status import job_status, jobs_without
from elasticd.core.words.records import JobRecord
from elasticd.recovery.fitness import Unfit
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, NodeId


def test_a_plain_job_shows_no_steps_that_are_not_its_scripts() -> None:
    spec = JobSpec.from_dict({"job": {"name": "p", "entrypoint": "p.py", "mode": "plain"}})
    record = JobRecord(JobId("p-1-abcd"), 1, spec.to_dict(), "digest", "running")
    rank = {"rank": 0, "step": 33, "grains": 1, "seconds": {"compute": 0.1}, "peak_bytes": 9}
    summary = {"step": 33, "loss": 0.0, "steps_per_second": 2.0, "ranks": [rank]}
    summary |= {"bytes_per_step": 64, "restarts": 2, "script_seconds": 7.5}
    shown = job_status(record, {**summary, "generation": 4, "recoveries": 1})
    assert (shown["mode"], shown["step"], shown["steps"]) == ("plain", 0, 0)
    assert shown["loss"] is shown["exact"] is shown["digest"] is None
    assert shown["ranks"] == [{"rank": 0, "step": 0, "grains": 0, "seconds": {}, "peak_bytes": 0}]
    assert (shown["bytes_per_step"], shown["restarts"], shown["script_seconds"]) == (0, 2, 7.5)
    assert "script" in job_status(replace(record, intent=1), summary)["reason"]
    ended = replace(record, state="finished", account={"restarts": 3})
    over = job_status(ended, summary)
    assert (over["restarts"], over["script_seconds"]) == (3, 0.0)
    assert (shown["generation"], shown["recoveries"]) == (4, 1)


def _spec() -> dict[str, Any]:
    job = {"name": "e", "entrypoint": "e.py"}
    batch, train = {"global": 4, "micro": 2}, {"steps": 30}
    return JobSpec.from_dict({"job": job, "batch": batch, "train": train}).to_dict()


def test_of_a_job_that_rests_the_record_tells_its_course_after_a_restart() -> None:
    account = {"loss": 1.5, "digest_step": 21, "recoveries": 1, "generation": 7, "exact": True}
    rests = JobRecord(JobId("e-1-abcd"), 1, _spec(), "digest", "queued", account=account, step=21)
    fresh = {"generation": 5, "step": 12, "recoveries": 0}
    for told in ({}, fresh):
        shown = job_status(rests, told)
        assert {key: shown[key] for key in account} == account
        assert shown["step"] == 21


def test_what_another_side_has_found_of_an_ended_jobs_bits_is_shown() -> None:
    """Its leader here knew nothing of that when it wrote the account."""
    account = {"exact": True, "exact_reason": None}
    ended = JobRecord(JobId("e-1-abcd"), 1, _spec(), "digest", "finished", account=account)
    assert job_status(ended, {})["exact"] is True
    shown = job_status(replace(ended, inexact="gradients differ between a and b"), {})
    assert (shown["exact"], shown["exact_reason"]) == (False, "gradients differ between a and b")


def test_of_a_full_queue_few_jobs_are_told_of_at_each_node_and_those_in_short() -> None:
    why = "Traceback\n" + "x" * 2000
    queue = [
        JobRecord(JobId(f"e-{n}-abcd"), n, _spec(), "digest", "queued",
                  unfit=(Unfit(NodeId("a"), 1, why),))
        for n in range(1, 100)
    ]  # fmt: skip
    told = jobs_without(queue, NodeId("a"))
    assert [each["job"] for each in told] == [record.id for record in queue[:16]]
    assert all(each["reason"].startswith("Traceback … xxx") for each in told)
    assert max(len(each["reason"]) for each in told) == 300
    assert jobs_without(queue, NodeId("b")) == []
