"""What a leader keeps of a job that has ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.jobs.status import job_status
from elasticd.core.jobs.table import JobTable
from elasticd.core.leading.drivers import Drivers
from elasticd.core.leading.phases.moves import Outcome, Rest
from elasticd.core.words.records import JobState
from elasticd.settings.job import JobSpec
from elasticd.types import JobId

from .bench import JOB, A, B, Bench, fault, holds


def ended(bench: Bench, state: JobState, step: int) -> JobTable:
    """The records of a leader that has heard that its job is over."""
    jobs = JobTable(bench.ctx, tuple, tuple)
    jobs.records[JOB] = replace(bench.record, state=state, step=step)
    nodes = NodeTable(bench.ctx, tuple, tuple, tuple)
    Drivers(bench.ctx, jobs, nodes, {JOB: bench.driver}).keep_records()
    return jobs


def drivers_of(bench: Bench) -> Drivers:
    jobs = JobTable(bench.ctx, tuple, tuple)
    jobs.records[JOB] = bench.record
    return Drivers(bench.ctx, jobs, NodeTable(bench.ctx, tuple, tuple, tuple), {JOB: bench.driver})


def test_speeds_that_were_measured_deal_the_first_shares() -> None:
    bench = Bench(A, B)
    drivers_of(bench).measured(JOB, {A: 3.0, B: 1.0}, "as measured")
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None))
    a, b = (sum(end - start for start, end in share) for share in bench.form().shares)
    assert a < b
    (told,) = bench.told("shares_foreseen")
    assert (told.reason, told.fields) == ("as measured", {"seconds": {A: 3.0, B: 1.0}})


def test_a_world_that_is_there_is_left_as_it_is() -> None:
    bench = trained_to(13)
    drivers_of(bench).measured(JOB, {A: 3.0, B: 1.0}, "late")
    drivers_of(bench).measured(JobId("another"), {A: 3.0}, "of a job that others lead")
    assert bench.office.balance.speeds.settled == {} and not bench.told("shares_foreseen")


def trained_to(step: int) -> Bench:
    bench = Bench()
    bench.progress(bench.adopt(), step)
    assert bench.driver.committed == step
    return bench


def test_the_side_that_has_finished_a_job_says_with_which_step() -> None:
    bench = trained_to(13)
    kept = ended(bench, "finished", 10).records[JOB]
    assert (kept.step, kept.account) == (10, {})
    assert job_status(kept, bench.driver.summary())["step"] == 10


def test_who_has_finished_a_job_itself_keeps_its_account() -> None:
    bench = trained_to(13)
    bench.driver.stage.end = Outcome("finished")
    assert ended(bench, "finished", 13).records[JOB].account["generation"] > 0


@pytest.mark.parametrize("state", ["cancelled", "failed"])
def test_of_a_job_that_was_ended_otherwise_the_account_is_kept(state: JobState) -> None:
    kept = ended(trained_to(13), state, 10).records[JOB]
    assert kept.step == 13 and kept.account


def test_of_a_plain_job_no_event_speaks_of_steps() -> None:
    bench = trained_to(13)
    bench.driver.office.spec = JobSpec.from_dict(
        {"job": {"name": "p", "entrypoint": "p.py", "mode": "plain"}}
    )
    bench.driver.stage.end = Outcome("finished")
    ended(bench, "running", 10)
    (told,) = bench.told("job_finished")
    assert told.reason == "every rank's script has exited with 0"
    assert bench.driver.summary()["restarts"] == 0


def test_what_ends_a_job_is_no_recovery_of_it() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.progress(world, 13)
    bench.driver.hear(B, fault(world, B, "ring_broken", "lost"))
    assert bench.office.account.recoveries == 1
    bench.driver.stage.fail("the script raised")
    assert ended(bench, "running", 13).records[JOB].account["recoveries"] == 0


def test_of_a_job_that_rests_the_account_is_kept_until_it_is_cancelled() -> None:
    bench = trained_to(13)
    bench.driver.stage.end = Rest(13, "7@a/x")
    table = ended(bench, "running", 13)
    kept = table.records[JOB]
    assert (kept.state, kept.step, kept.account["generation"] > 0) == ("queued", 13, True)
    table.cancel(1, JOB, {"generation": 0, "loss": None})
    assert table.records[JOB].account == kept.account
