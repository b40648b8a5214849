"""For what a job waits before a world is tried, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.jobs.nodes import ALL_ALIKE, NodeDuties
from elasticd.core.leading.phases.moves import Outcome, Rest
from elasticd.core.words.worlds import Freeze
from elasticd.types import NodeId, Tag
from tests.unit.core.leading.bench import A, B, Bench, C, status_of


def test_too_few_members_are_waited_for() -> None:
    bench = Bench(least=2)
    bench.say("ready", None, A)
    for node in (B, C):
        bench.driver.hear(node, replace(status_of(None), trouble="no disk"))
    assert bench.phase == "waiting"
    assert bench.why == "1 of at least 2 members are ready; b: no disk; c: no disk"
    assert bench.driver.end is None


def test_what_is_waited_for_is_shown_at_once() -> None:
    """Be it that trainers may come yet: nobody has to stare at a job that just does not run."""
    bench = Bench()
    bench.say("starting", None, A)
    for node in (B, C):
        bench.driver.hear(node, replace(status_of(None), trouble="no disk"))
    shown = bench.driver.summary()
    assert shown["state"] == "running" and bench.why
    assert shown["reason"] == bench.why
    bench = Bench()
    bench.adopt()
    assert bench.driver.summary()["reason"] is None, "it trains"


def test_a_job_fails_if_no_member_will_ever_have_a_trainer() -> None:
    bench = Bench()
    for node in bench.members:
        bench.driver.hear(node, replace(status_of(None), trouble="no train.py", hopeless=True))
    assert isinstance(bench.driver.end, Outcome)
    assert bench.driver.end.state == "failed"
    assert "a: no train.py" in bench.driver.end.reason


def test_a_side_that_may_be_the_lesser_one_does_not_end_the_job() -> None:
    bench, away = Bench(A), NodeId("away")
    bench.driver.want(bench.record, frozenset({away}))
    bench.driver.hear(A, replace(status_of(None), trouble="no train.py", hopeless=True))
    assert bench.driver.end is None
    assert "a: no train.py; away may train it elsewhere" in bench.why
    bench.driver.want(bench.record, frozenset())
    bench.driver.tick()
    assert isinstance(bench.driver.end, Outcome), "it was forgotten: nobody may"


def test_trainers_that_start_are_waited_for_but_not_for_ever() -> None:
    bench = Bench()
    bench.say("ready", None, A, B)
    bench.say("starting", None, C)
    assert bench.why == "trainers are starting on c"
    due = min(t for t in bench.driver.deadlines() if t > bench.ctx.now + 6)
    bench.pass_time(bench.ctx.timing.start_seconds)
    assert [node for node, _ in bench.sent(Freeze)] == [A, B]
    assert due <= bench.ctx.now, "the node was to be woken for it"


def test_a_paused_job_without_trainers_rests_at_once() -> None:
    bench = Bench(intent=1)
    bench.say("ready")
    assert bench.driver.end == Rest(0, "")


def test_one_of_which_nobody_here_knows_more_rests_as_it_did() -> None:
    bench = Bench(intent=1, step=96, rested="7@a/x")
    bench.say("ready")
    assert bench.driver.end == Rest(96, "7@a/x")


# --- steps that were made before ------------------------------------------------------------------


def asked(bench: Bench) -> None:
    """All are ready, and say that they hold nothing."""
    bench.say("ready")
    bench.hold_nothing()


@pytest.mark.parametrize("made", [{"began": Tag(3, A, "x")}, {"step": 9}, {"rested": "3@a/x"}])
def test_a_job_that_has_made_steps_is_not_begun_anew_while_who_may_have_them_is_away(
    made: dict[str, Any],
) -> None:
    bench = Bench(A, B, **made)
    bench.driver.want(bench.record, frozenset({C}), ALL_ALIKE)
    asked(bench)
    assert (bench.phase, bench.driver.summary()["state"]) == ("waiting", "running")
    bench.pass_time(bench.ctx.timing.holding_seconds + 1)
    assert bench.driver.summary()["state"] == "parked", "for so long it may be otherwise soon"
    bench.driver.summarise(at_once=True)
    assert bench.phase == "freezing" and "waiting for c" in bench.told("job_parked")[0].reason
    bench.hold_nothing()
    assert bench.driver.summary()["state"] == "parked"
    assert bench.why == (
        "the job has made steps before, and nothing of them is here: waiting for c"
        " (for good away? elasticctl nodes forget NODE)"
    )
    bench.driver.want(bench.record, frozenset(), ALL_ALIKE)
    bench.pass_time(bench.ctx.timing.retry_seconds)
    bench.hold_nothing()
    assert bench.phase == "forming" and bench.driver.summary()["state"] == "running"


def test_nor_while_one_is_that_stores_and_trains_nothing() -> None:
    bench = Bench(A, B, step=9, offered=(A, B, C))
    bench.driver.want(bench.record, frozenset(), NodeDuties(stores=frozenset({C})))
    asked(bench)
    assert "waiting for c" in bench.why


def test_one_that_has_made_none_begins_whoever_is_away() -> None:
    bench = Bench(A, B)
    bench.driver.want(bench.record, frozenset({C}), ALL_ALIKE)
    asked(bench)
    assert bench.phase == "forming"
