"""The job table: when operators are answered, and what repeating a request does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.jobs.table import JobTable
from elasticd.core.words import effects as e
from elasticd.core.words.codec import to_plain
from elasticd.core.words.records import JobRecord, JobState
from elasticd.core.words.tables import Jobs
from elasticd.recovery.fitness import Unfit
from elasticd.types import JobId, NodeId

ME, OTHER = NodeId("me"), NodeId("other")
JOB = JobId("job-1")


def table() -> JobTable:
    ctx = Context(ME, lambda: "nonce")
    return JobTable(ctx, lambda: (ME, OTHER), lambda: (ME, OTHER))


def record(job: JobId = JOB, number: int = 1, priority: int = 0) -> JobRecord:
    spec = {"job": {"name": "job", "priority": priority}}
    return JobRecord(job, number, spec, "digest", "queued")


def replies(jobs: JobTable) -> list[dict[str, Any]]:
    found = [to_plain(f.body) for f in jobs.ctx.effects if isinstance(f, e.Reply)]
    jobs.ctx.effects.clear()
    return found


def test_an_answer_waits_until_all_members_have_it_on_disk() -> None:
    jobs = table()
    jobs.submit(1, record())
    jobs.answer()
    assert replies(jobs) == []
    jobs.on_kept(OTHER, [JOB])
    jobs.answer()
    assert replies(jobs) == [{"id": JOB, "warning": "", "short": ""}]


def test_a_request_that_changes_nothing_is_answered_too() -> None:
    jobs = table()
    jobs.update(record())
    for number in (1, 2):
        jobs.ctx.effects.clear()
        jobs.pause(number, JOB, True)
        assert any(isinstance(f, e.Send) and f.to == OTHER for f in jobs.ctx.effects)
        jobs.on_kept(OTHER, [JOB])
        jobs.answer()
        assert replies(jobs) == [{"id": JOB, "state": "paused", "already": False}]
    assert jobs.records[JOB].paused
    told = [f for f in jobs.ctx.effects if isinstance(f, e.Emit)]
    assert told == [], "that it was paused is told once"


def test_only_a_job_that_has_ended_is_forgotten() -> None:
    jobs = table()
    jobs.update(record())
    jobs.forget(1, JOB)
    jobs.forget(2, JobId("none"))
    texts = [reply["error"] for reply in replies(jobs)]
    assert texts == [
        "job-1 has not ended; end it first: elasticctl cancel job-1",
        "no job none",
    ]
    assert not jobs.records[JOB].forgotten
    jobs.update(replace(record(), state="cancelled"))
    for number in (3, 4):
        jobs.ctx.effects.clear()
        jobs.forget(number, JOB)
        kept = [f.record for f in jobs.ctx.effects if isinstance(f, e.Persist)]
        assert [each.forgotten for each in kept] == [True] * (number == 3)
        jobs.on_kept(OTHER, [JOB])
        jobs.answer()
        assert replies(jobs) == [{"id": JOB, "state": "forgotten", "already": False}]


def test_what_is_kept_no_longer_is_told_at_once_and_of_ended_jobs_alone() -> None:
    jobs = table()
    ended = [replace(record(JobId(f"job-{n}"), n), state="finished") for n in range(2, 200)]
    jobs.update(record(), *ended)
    jobs.ctx.effects.clear()
    jobs.discard([JOB, JobId("none"), *(each.id for each in ended)])
    told = [f.message for f in jobs.ctx.effects if isinstance(f, e.Send)]
    assert len(told) == 1 and isinstance(told[0], Jobs)
    assert {(each.id, each.forgotten) for each in told[0].records} == {
        (each.id, True) for each in ended
    }
    assert not jobs.records[JOB].forgotten
    jobs.ctx.effects.clear()
    jobs.discard([each.id for each in ended])
    assert jobs.ctx.effects == [], "they are forgotten already"


def test_what_is_forgotten_stays_so_for_who_was_away() -> None:
    here, there = table(), table()
    here.update(replace(record(), state="finished", forgotten=True))
    there.update(replace(record(), state="running"))
    there.on_jobs(ME, Jobs((here.records[JOB],), ()))
    here.on_jobs(OTHER, Jobs((replace(record(), state="running"),), ()))
    for jobs in (here, there):
        assert jobs.records[JOB].forgotten and jobs.records[JOB].state == "finished"


def test_whoever_is_asked_last_wins_when_two_sides_meet() -> None:
    here, there = table(), table()
    for side in (here, there):
        side.update(record())
    here.pause(1, JOB, True)
    there.pause(2, JOB, False)  # it has not heard of the pause
    merged = here.records[JOB].merged(there.records[JOB])
    assert not merged.paused


def test_pause_of_an_unknown_or_ended_job_is_refused() -> None:
    jobs = table()
    jobs.pause(1, JOB, True)
    jobs.update(record())
    jobs.cancel(2, JOB, {})
    jobs.pause(3, JOB, False)
    assert [r.get("error") for r in replies(jobs)] == [
        "no job job-1",
        "job-1 has ended: it was cancelled",
    ]


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled"])
def test_cancel_of_an_ended_job_says_that_it_had_ended(state: JobState) -> None:
    jobs = table()
    jobs.update(replace(record(), state=state))
    before = jobs.records[JOB]
    jobs.cancel(1, JOB, {"step": 7})
    assert replies(jobs) == [{"id": JOB, "state": state, "already": True}]
    assert jobs.records[JOB] == before


def test_the_order_of_the_queue() -> None:
    jobs = table()
    for name, number, priority in (("a", 1, 0), ("b", 2, 1), ("c", 3, 1), ("d", 3, -1)):
        jobs.update(record(JobId(name), number, priority))
    assert [r.id for r in jobs.runnable()] == ["b", "c", "a", "d"]
    jobs.pause(1, JobId("b"), True)
    assert [r.id for r in jobs.runnable()] == ["c", "a", "d"]


def test_a_job_is_offered_to_all_that_were_ever_in_a_view_with_it() -> None:
    members = [ME, OTHER]
    ctx = Context(ME, lambda: "nonce")
    jobs = JobTable(ctx, tuple, lambda: tuple(members))
    jobs.update(record())
    members[1] = third = NodeId("third")
    jobs.follow()
    assert jobs.records[JOB].offered == (ME, OTHER, third)
    kept = [f.record for f in ctx.effects if isinstance(f, e.Persist)]
    assert kept[-1] == jobs.records[JOB], "after a restart it is known still"
    jobs.update(replace(record(), state="finished"))
    members[1] = NodeId("fourth")
    jobs.follow()
    assert jobs.records[JOB].offered == (ME, OTHER, third), "of one that has ended it is no use"


def test_both_sides_know_afterwards_to_whom_a_job_was_offered() -> None:
    here, there = (replace(record(), offered=(node,)) for node in (OTHER, ME))
    assert here.merged(there).offered == there.merged(here).offered == (ME, OTHER)


def test_a_job_that_is_submitted_again_is_the_same_job() -> None:
    jobs = table()
    jobs.submit(1, record())
    jobs.update(replace(record(), state="running", turn=1))
    before = len(jobs.ctx.effects)
    jobs.submit(2, record())
    jobs.on_kept(OTHER, [JOB])
    jobs.answer()
    assert jobs.records[JOB].state == "running"
    assert not [each for each in jobs.ctx.effects[before:] if isinstance(each, e.Emit)]
    assert replies(jobs) == [{"id": JOB, "warning": "", "short": ""}] * 2


def test_a_node_whose_journal_has_lost_that_it_is_left_out_is_tried_again_too() -> None:
    """When it first hears of the job; not when it is left out after that."""
    left_out = replace(record(), unfit=(Unfit(ME, 1, "no disk"), Unfit(OTHER, 1, "no disk")))
    jobs = table()
    jobs.begins()
    jobs.on_jobs(OTHER, Jobs((left_out,), ()))
    assert [entry.turn for entry in jobs.records[JOB].unfit] == [2, 1]
    again = replace(left_out, unfit=(Unfit(ME, 3, "no disk"),))
    jobs.on_jobs(OTHER, Jobs((again,), ()))
    assert [entry.turn for entry in jobs.records[JOB].unfit] == [3, 1]


def test_a_new_job_may_do_without_a_node_on_which_its_preflight_failed() -> None:
    """Until that node's daemon begins anew."""
    entries = (Unfit(ME, 1, "no token", foreseen=True), Unfit(OTHER, 1, "no disk"))
    jobs = table()
    jobs.begins()
    jobs.on_jobs(OTHER, Jobs((replace(record(), unfit=entries),), ()))
    assert [entry.turn for entry in jobs.records[JOB].unfit] == [1, 1]
    jobs.begins()
    assert [entry.turn for entry in jobs.records[JOB].unfit] == [2, 1]


def test_a_job_that_was_submitted_here_is_known_here() -> None:
    jobs = table()
    jobs.submit(1, record())
    jobs.on_jobs(OTHER, Jobs((replace(record(), unfit=(Unfit(ME, 1, "no disk"),)),), ()))
    assert [entry.turn for entry in jobs.records[JOB].unfit] == [1]
