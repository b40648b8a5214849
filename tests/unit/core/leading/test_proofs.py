"""Members that join show that they compute what the others do; who does not is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.checkpoints.manifest import Stored
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.leading.phases.unfit import leave_out
from elasticd.core.leading.trust import without_unproven
from elasticd.core.words.records import Proof, World
from elasticd.core.words.worldlines import stayed
from elasticd.core.words.worlds import Form, Freeze, Holding, Proven
from elasticd.recovery.exactness import FORGOTTEN
from elasticd.recovery.likeness import unlike
from elasticd.types import NodeId, Tag
from tests.unit.core.leading.bench import (
    GENERATION,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    manifest_of,
    point_of,
    status_of,
    world_of,
)

GRAIN, BODY = {"grain 0 of step 11": "g"}, {"model/w": "m", "optimizer/rate": "o"}


def grown(bench: Bench) -> World:
    """``c`` has joined at step 10."""
    world = replace(world_of(A, B, C, step=10), unproven=(C,), sources=("keep", "keep", "peer:a"))
    bench.say("active", world, A, B, C)
    bench.sent(Proven)
    return world


def shows(bench: Bench, world: World, node: NodeId, **proof: Any) -> None:
    told = status_of("active", world)
    assert told.trainer is not None
    shown = Proof(world.generation, **proof)
    bench.driver.hear(node, replace(told, trainer=replace(told.trainer, proof=shown)))


def test_who_shows_the_same_goes_on() -> None:
    bench = Bench()
    world = grown(bench)
    assert stayed(world) == (A, B)
    shows(bench, world, C, grain=GRAIN)
    assert bench.sent(Proven) == [], "the keeper has said nothing yet"
    shows(bench, world, A, grain=GRAIN)
    assert [(to, p.part) for to, p in bench.sent(Proven)] == [(C, "grain")]
    shows(bench, world, A, grain=GRAIN, body=BODY)
    shows(bench, world, C, body=BODY)
    assert [(to, p.part) for to, p in bench.sent(Proven)] == [(C, "body")]
    assert bench.told("node_unfit") == [] == bench.sent(Freeze)


@pytest.mark.parametrize("required", [False, True])
def test_another_chip_is_let_in_unless_the_job_requires_its_bits(required: bool) -> None:
    bench = Bench()
    bench.office.exactness.required = required
    world = grown(bench)
    for node, chip in ((A, "M1"), (B, "M1"), (C, "M3")):
        told = status_of("active", world)
        assert told.trainer is not None
        digest = "h" if node == C else "g"
        shown = Proof(world.generation, grain={"grain 0 of step 11": digest})
        trainer = replace(told.trainer, proof=shown)
        bench.driver.hear(node, replace(told, trainer=trainer, chip=chip))
    if required:
        (event,) = bench.told("node_unfit")
        assert event.reason.startswith("its chip (M3) computes other bits than a's (M1), and")
        assert bench.told("exact_lost") == []
    else:
        (event,) = bench.told("exact_lost")
        assert event.reason == "gradients differ between a (M1) and c (M3)"
        assert bench.told("node_unfit") == [] == bench.sent(Freeze)
        bench.say("active", world, B)
        assert (C, "grain") in [(to, told.part) for to, told in bench.sent(Proven)]


def test_who_shows_something_else_is_left_out() -> None:
    bench = Bench()
    world = grown(bench)
    shows(bench, world, A, grain=GRAIN)
    shows(bench, world, C, grain={"grain 0 of step 11": "h"})
    (event,) = bench.told("node_unfit")
    assert event.fields["culprit"] == C
    assert event.reason.startswith("the script keeps state outside of run.state: ")
    assert "grain 0 of step 11" in event.reason
    freezes = bench.sent(Freeze)
    assert {to for to, _ in freezes} == {A, B, C}
    serial, at = freezes[0][1].serial, world.generation
    for node in (A, B, C):
        held = holds(point_of(10), at, serial=serial, unproven=node == C, given=node == C)
        bench.driver.hear(node, held)
    (form, *_) = [message for _, message in bench.sent(Form)]
    assert form.world.members == (A, B) and form.world.unproven == ()
    assert bench.driver.summary()["exact"]


def goes_on(bench: Bench, a: Holding, b: Holding) -> None:
    """``c`` is left out of its world, and the others hold this; a checkpoint of step 5 is there."""
    world, stored = grown(bench), (Stored(manifest_of(5, A, B, C), (0,)),)
    for node in bench.members:
        bench.driver.hear(node, replace(status_of("active", world), stored=stored))
    differs(bench, world)
    bench.answer(a=a, b=b, c=holds(None))


@pytest.mark.parametrize("required", [False, True])
def test_who_knows_that_state_is_kept_outside_promises_nothing_once_it_is_lost(
    required: bool,
) -> None:
    bench = Bench()
    bench.office.exactness.required = required
    goes_on(bench, holds(None), holds(None))
    (event,) = bench.told("exact_lost")
    assert event.reason.startswith(FORGOTTEN)
    assert "c computed" in event.reason and event.reason.endswith("from step 5")
    if required:
        end = bench.driver.end
        assert isinstance(end, Outcome) and event.reason in end.reason
        assert bench.sent(Form) == []
        return
    (form, *_) = [message for _, message in bench.sent(Form)]
    assert (form.world.step, form.world.rung, form.world.exact) == (5, "restore", False)
    assert bench.driver.historied(bench.record).inexact == event.reason
    assert bench.office.exactness.promised, "members are alike, so who joins is compared with them"


def test_it_is_not_lost_while_one_goes_on_who_has_stayed() -> None:
    bench = Bench()
    goes_on(bench, holds(None), holds(point_of(10), GENERATION))
    (form, *_) = [message for _, message in bench.sent(Form)]
    assert (form.world.step, form.world.exact) == (10, True)
    assert bench.told("exact_lost") == []


def test_it_is_lost_where_only_those_go_on_who_have_not_shown_that_they_have_it() -> None:
    bench = Bench()
    goes_on(bench, holds(None), holds(point_of(10), GENERATION, unproven=True, given=True))
    (form, *_) = [message for _, message in bench.sent(Form)]
    assert (form.world.step, form.world.exact) == (10, False)


def test_nothing_is_lost_at_the_start_nor_where_nobody_knows_of_any() -> None:
    bench = Bench()
    differs(bench, grown(bench))
    bench.answer(**{node: holds(None) for node in bench.members})
    (form, *_) = [message for _, message in bench.sent(Form)]
    assert (form.world.rung, form.world.step, form.world.exact) == ("start", 0, True)
    unaware = Bench()
    world, stored = grown(unaware), (Stored(manifest_of(5, A, B, C), (0,)),)
    for node in unaware.members:
        unaware.driver.hear(node, replace(status_of("active", world), stored=stored))
    unaware.driver.hear(A, fault(world, A))
    unaware.answer(**{node: holds(None) for node in unaware.members})
    (form, *_) = [message for _, message in unaware.sent(Form)]
    assert (form.world.step, form.world.exact) == (5, True)


def test_the_node_stays_out() -> None:
    bench = Bench()
    world = grown(bench)
    shows(bench, world, A, grain=GRAIN)
    shows(bench, world, C, grain={"grain 0 of step 11": "h"})
    assert bench.office.wishes.barred == {C}


def test_where_nobody_has_shown_it_the_others_show_it_to_the_first_who_stays() -> None:
    """Those with whom they would compare are lost. Who comes next may differ from them."""
    bench = Bench()
    world = grown(bench)
    bench.driver.hear(A, fault(world, A))
    new = holds(point_of(11), world.generation, unproven=True)
    bench.answer(**{B: new, C: new, A: holds(None)})
    (form, *_) = [message for _, message in bench.sent(Form)]
    assert form.world.unproven == tuple(n for n in form.world.members if n != B)
    assert stayed(form.world) == (B,)


def differs(bench: Bench, world: World) -> None:
    shows(bench, world, A, grain=GRAIN)
    shows(bench, world, C, grain={"grain 0 of step 11": "h"})


def again(bench: Bench) -> World:
    """``c``, without which there are too few, has computed something else, and joins again."""
    differs(bench, grown(bench))
    (event,) = bench.told("node_unfit")
    assert event.fields["culprit"] == C and bench.told("node_tried_again")
    assert bench.driver.end is None and bench.office.fitness.left_out == frozenset()
    old = holds(point_of(10), GENERATION)
    bench.answer(a=old, b=old, c=holds(None))
    world = bench.form()
    assert world.unproven == (C,)
    bench.say("active", world, A, B, C)
    return world


def test_one_wrong_bit_ends_no_job_that_needs_all_its_nodes() -> None:
    bench = Bench(least=3)
    world = again(bench)
    bench.sent(Proven)
    for node in (A, C):
        shows(bench, world, node, grain=GRAIN)
    assert [(to, p.part) for to, p in bench.sent(Proven)] == [(C, "grain")]
    assert bench.driver.end is None


def test_what_was_wrong_is_gone_with_its_trainer() -> None:
    """What the next one is given counts, be it that its daemon can't say yet in which world."""
    bench = Bench(least=3)
    world = again(bench)
    bench.driver.hear(A, fault(world, A))
    held = bench.office.trust.trusted(C, holds(point_of(10), None, unproven=True, given=True))
    assert held.point == point_of(10)


def test_a_job_fails_where_too_few_compute_alike() -> None:
    bench = Bench(least=3)
    differs(bench, again(bench))
    end: Any = bench.driver.end
    assert end.state == "failed"
    assert end.reason.startswith("the script keeps state outside of run.state: ")


def test_another_leader_goes_on_with_it() -> None:
    """Whoever has not been answered says it again, with its status."""
    bench = Bench()
    world = replace(world_of(A, B, C, step=10), unproven=(C,), sources=("keep", "keep", "peer:a"))
    told = status_of("active", world)
    assert told.trainer is not None
    shown = replace(told, trainer=replace(told.trainer, proof=Proof(GENERATION, grain=GRAIN)))
    bench.driver.hear(B, told)
    bench.driver.hear(A, shown)
    bench.driver.hear(C, shown)
    assert (C, "grain") in [(to, p.part) for to, p in bench.sent(Proven)]


def test_nothing_is_compared_where_nothing_is_promised() -> None:
    bench = Bench()
    world = grown(bench)
    bench.office.exactness.lose("chips differ")
    shows(bench, world, C, grain=GRAIN)
    assert [to for to, _ in bench.sent(Proven)] == [C]


def test_a_world_of_those_who_all_begin_again_has_nobody_to_compare_with() -> None:
    sources = ("checkpoint",) * 3
    world = replace(world_of(A, B, C), sources=sources, unproven=())
    assert stayed(world) == ()


def test_what_a_newcomers_body_has_made_counts_only_where_nobody_else_is_as_far() -> None:
    at, before = Tag(5, A, "x"), Tag(4, A, "x")
    made = holds(point_of(11), at, unproven=True)
    given = holds(point_of(11), at, unproven=True, given=True)
    here, there = holds(point_of(10), at), holds(point_of(3), before)
    assert without_unproven({A: here, C: made})[C].point is None
    assert without_unproven({A: here, C: given})[C].point == point_of(11)
    assert without_unproven({A: there, C: made})[C].point == point_of(11), "it may be committed"
    assert without_unproven({C: made})[C].point == point_of(11)
    assert without_unproven({A: holds(point_of(11), before), C: made})[C].point is None


def test_what_differs_is_named_the_cause_before_what_comes_of_it() -> None:
    ours = {"model/a": "1", "optimizer/rate": "1", "model/b": "1", "model/c": "1"}
    assert unlike(ours, dict(ours), "a", 11) == ""
    assert ": optimizer/rate. What" in unlike(ours, {**ours, "optimizer/rate": "2"}, "a", 11)
    said = unlike(ours, dict.fromkeys(ours, "2"), "a", 11)
    assert ": optimizer/rate, model/a, model/b and 1 more. What" in said
    assert "model/c" in unlike(ours, {n: d for n, d in ours.items() if n != "model/c"}, "a", 11)


def test_what_those_differ_in_who_have_stayed_is_no_newcomers_fault() -> None:
    bench = Bench()
    world = grown(bench)
    seen = "run.track('seen', …)"
    shows(bench, world, A, body={**BODY, seen: "1"})
    shows(bench, world, C, body={**BODY, seen: "3"})
    assert bench.told("node_unfit") == [] and bench.sent(Proven) == [], "b has shown nothing yet"
    shows(bench, world, B, body={**BODY, seen: "2"})
    (event,) = bench.told("state_differs")
    assert event.fields["name"] == seen
    assert "rank 0 (a) has 1, rank 1 (b) has 2. " in event.reason
    end: Any = bench.driver.end
    assert (end.state, end.reason) == ("failed", event.reason)
    assert bench.told("node_unfit") == []


def test_who_has_what_any_has_that_stayed_goes_on() -> None:
    """Where those differ in what they compute, others find out whose is right."""
    bench = Bench()
    world = grown(bench)
    shows(bench, world, A, body={**BODY, "model/w": "x"})
    shows(bench, world, C, body=BODY)
    assert bench.sent(Proven) == []
    shows(bench, world, B, body=BODY)
    assert [(to, p.part) for to, p in bench.sent(Proven)] == [(C, "body")]
    assert bench.told("node_unfit") == [] == bench.told("state_differs")


def test_who_stays_keeps_what_it_shows_until_all_are_past_that() -> None:
    """Another leader may have to compare again."""
    bench = Bench()
    world = grown(bench)
    for node in (A, B, C):
        shows(bench, world, node, body=BODY)
    assert [to for to, _ in bench.sent(Proven)] == [C]
    bench.progress(world, 12, A, B, C)
    shows(bench, world, A, body=BODY)
    assert {to for to, _ in bench.sent(Proven)} == {A, B}


def test_one_that_was_left_out_so_is_tried_once_more_rather_than_that_the_job_ends() -> None:
    """Once may be one wrong bit. Not twice: who computes something else each time lets one step be
    committed, and two such nodes would take turns."""
    bench = Bench(least=2)
    differs(bench, grown(bench))
    fitness = bench.office.fitness
    assert fitness.unlike == {C}
    assert leave_out(bench.office, B, "it differs, too", unlike=True) is None
    assert fitness.left_out == {B}, "c is tried again"
    assert leave_out(bench.office, C, "it differs again", unlike=True) is None
    assert fitness.left_out == {C}, "and now b"
    assert leave_out(bench.office, B, "it differs again", unlike=True) is not None
    assert fitness.left_out == {C}
