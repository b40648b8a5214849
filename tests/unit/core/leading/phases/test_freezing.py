"""Members say what they hold: whom the leader asks, believes, and does without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.leading.phases.freezing import Freezing
from elasticd.core.words.records import TrainerStatus, View
from elasticd.core.words.worlds import (
    Form,
    Freeze,
)
from elasticd.types import Sign, Tag
from tests.unit.core.leading.bench import (
    ME,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    point_of,
    started,
    status_of,
    world_of,
)

TRAINER = TrainerStatus("ready", 7, {}, None, True)


def test_only_answers_to_the_last_question_count() -> None:
    bench = Bench()
    bench.say("ready")
    for node in bench.members:
        bench.driver.hear(node, holds(None, serial="of before"))
    assert bench.phase == "freezing"
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    assert bench.phase == "forming"


def test_who_says_nothing_is_blamed_and_done_without() -> None:
    bench = Bench()
    bench.say("ready")
    asked = bench.sent(Freeze)
    for node, freeze in asked[:2]:
        bench.driver.hear(node, holds(None, serial=freeze.serial))
    bench.pass_time(3 * bench.ctx.timing.holding_seconds)
    assert bench.phase == "forming"
    assert [node for node, _ in bench.sent(Form)] == [A, B]
    (event,) = bench.told("fault_detected")
    assert (event.fields["culprit"], event.fields["fault"]) == (C, "hang")


def test_whose_trainer_has_ended_is_not_waited_for() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.driver.hear(A, fault(world, A))
    bench.sent(Freeze)
    bench.say("active", world, B, C)
    bench.driver.hear(A, fault(world, B))
    freezing = bench.driver.stage.phase
    assert isinstance(freezing, Freezing)
    assert freezing.asked == {C}


@pytest.mark.parametrize("ready", [True, False])
def test_a_newcomer_that_holds_more_than_they_turn_out_to_hold_is_asked_too(ready: bool) -> None:
    """Whoever gave it its state has lost it since: nobody is to go back behind it. The one that was
    asked before is asked again if it didn't wait for its reducer, as nobody else was asked."""
    bench = Bench()
    world = world_of(A, B, step=10)
    given = replace(status_of("ready"), trainer=replace(TRAINER, prepared=point_of(11)))
    bench.driver.hear(C, given)
    bench.driver.hear(B, replace(status_of(None, world), trouble="its disk is gone"))
    bench.driver.hear(A, status_of("active", world, committed=12))
    bench.driver.hear(A, fault(world, B))
    bench.answer(a=holds(None, world.generation, host="a:1" if ready else ""))
    assert bench.phase == "freezing"
    asked = bench.sent(Freeze)
    assert [to for to, _ in asked] == ([C] if ready else [C, A])
    assert not any(freeze.alone for _, freeze in asked)
    for to, freeze in asked:
        answer = holds(point_of(11) if to == C else None, host=f"{to}:1", serial=freeze.serial)
        bench.driver.hear(to, answer)
    (world,) = {form.world for _, form in bench.sent(Form)}
    assert sorted(world.members) == [A, C] and all(world.hosts)


def test_a_view_voids_what_was_asked() -> None:
    bench = Bench()
    bench.say("ready")
    (_, before), *_ = bench.sent(Freeze)
    bench.driver.on_view(View(Tag(2, ME, "w"), bench.members), ())
    assert (bench.phase, bench.why) == ("waiting", "waiting to hear from a, b, c")
    bench.driver.hear(A, holds(None, serial=before.serial))
    assert bench.phase == "waiting"


def test_a_ring_that_breaks_as_its_world_is_left_on_purpose_is_no_fault() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.want(bench.record, frozenset(), NodeDuties(leaving=frozenset({C})))
    bench.progress(world, 2)
    assert bench.phase == "freezing"
    bench.driver.hear(B, fault(world, B, "ring_broken", "its neighbour has gone"))
    assert bench.office.account.recovery is None


def test_nobody_is_asked_twice_and_only_a_lone_node_may_answer_before_a_reducer_is_warm() -> None:
    three, one = Bench(), Bench(A)
    three.say("ready")
    one.say("ready")
    assert [freeze.alone for _, freeze in three.sent(Freeze)] == [False, False, False]
    assert [freeze.alone for _, freeze in one.sent(Freeze)] == [True]
    three.say("ready")
    assert three.sent(Freeze) == []


def test_a_member_that_cannot_take_part_is_left_out_of_the_plan() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None, able=False), c=holds(None))
    assert [node for node, _ in bench.sent(Form)] == [A, C]


def test_where_too_few_can_take_part_the_job_waits_with_the_reason() -> None:
    bench = Bench(least=3)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None, able=False), c=holds(None))
    assert bench.phase == "waiting"
    assert bench.why == "2 of at least 3 members are ready"
    assert bench.sent(Form) == []


@pytest.mark.parametrize(("kind", "counts"), [("reducer_gone", False), ("reducer_lost", True)])
def test_a_reducer_that_dies_counts_even_as_its_world_is_left(kind: Sign, counts: bool) -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.want(bench.record, frozenset(), NodeDuties(leaving=frozenset({C})))
    bench.progress(world, 2)
    bench.driver.hear(B, fault(world, B, kind))
    assert (bench.office.account.recovery is not None) == counts


def test_once_something_has_broken_the_world_a_broken_ring_speaks_of_it_too() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.driver.hear(A, fault(world, A, "link_lost", "its link went"))
    bench.driver.hear(B, fault(world, B, "ring_broken", "its neighbour has gone"))
    assert [piece.text for piece in bench.office.account.pieces] == [
        "its link went",
        "its neighbour has gone",
    ]


def test_who_says_nothing_is_waited_for_until_the_node_is_woken() -> None:
    bench = Bench()
    bench.say("ready")
    due = bench.ctx.now + 3 * bench.ctx.timing.holding_seconds
    assert due in bench.driver.deadlines()
    bench.pass_time(due - bench.ctx.now - 0.1)
    assert bench.phase == "freezing"
    assert bench.told("fault_detected") == []
