"""How a world comes up: in which order, what voids it, and who is late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.words.records import View, World
from elasticd.core.words.ring import Continue, Go, Listening
from elasticd.core.words.worlds import (
    Form,
    Formed,
    Hung,
    Noted,
    Notice,
    Ready,
)
from elasticd.types import NodeId, Tag
from tests.unit.core.leading.bench import (
    GENERATION,
    JOB,
    ME,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    point_of,
    status_of,
)


def test_a_world_comes_up_in_order_and_is_announced_when_all_are_ready() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    (_, form), *_ = orders = bench.sent(Form)
    world = form.world
    assert [node for node, _ in orders] == [A, B, C]
    bench.driver.hear(A, Listening(JOB, world.generation))
    assert bench.sent(Go) == []
    bench.driver.hear(B, Listening(JOB, world.generation))
    assert [node for node, _ in bench.sent(Go)] == [C]
    bench.driver.hear(C, Listening(JOB, world.generation))
    assert [node for node, _ in bench.sent(Continue)] == [A]
    for node in (A, B):
        bench.driver.hear(node, Ready(JOB, world.generation))
    assert (bench.phase, bench.driver.forming) == ("forming", True)
    bench.driver.hear(C, Ready(JOB, world.generation))
    assert bench.phase == "running"
    (event,) = bench.told("world_formed")
    assert event.fields["members"] == [A, B, C]


@pytest.mark.parametrize("chips", [("M1", "M1"), ("M1", "M3")])
def test_where_chips_differ_all_take_the_state_from_the_one_they_are_compared_with(
    chips: tuple[str, str],
) -> None:
    """What others hold may have other bits, which nobody has seen yet."""
    other = NodeId("d")
    bench = Bench(A, B, C, other)
    for node in bench.members:
        bench.driver.hear(node, replace(status_of("ready"), chip=chips[node == B]))
    same = holds(point_of(5), GENERATION)
    bench.answer(a=same, b=same, c=holds(None), d=holds(None))
    world = bench.sent(Form)[0][1].world
    apart = chips[0] != chips[1]
    assert world.members == (A, B, C, other) and world.whole == apart
    assert set(world.sources[2:]) == ({"peer:a"} if apart else {"peer:a", "peer:b"})


def with_one_ready() -> tuple[Bench, World]:
    """A world forms, and of its members A alone is known to be ready."""
    bench = Bench()
    bench.say("ready")
    bench.answer(**{node: holds(None) for node in bench.members})
    (_, form), *_ = bench.sent(Form)
    bench.driver.hear(A, Ready(JOB, form.world.generation))
    return bench, form.world


def test_who_dies_when_it_is_ready_may_have_died_of_the_step() -> None:
    """The word of the last that is ready may come after the death of who was ready first, and
    who had begun to compute."""
    bench, world = with_one_ready()
    bench.driver.hear(A, replace(fault(world, A), status=-9))
    assert bench.phase != "forming"
    ((step, (tried,)),) = bench.office.trust.ladder.tries.items()
    assert step == 1 and tried.died == ((A, False),) and tried.alone is None


def test_who_dies_before_it_is_ready_has_not_died_of_the_step() -> None:
    bench, world = with_one_ready()
    bench.driver.hear(B, replace(fault(world, B), status=-9))
    assert bench.phase != "forming" and bench.office.trust.ladder.tries == {}


def test_words_of_another_world_do_not_count() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    for node in bench.members:
        bench.driver.hear(node, Ready(JOB, Tag(99, B, "other")))
    assert bench.phase == "forming"


def test_a_world_that_does_not_form_is_blamed_on_who_is_late() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(point_of(3)), c=holds(point_of(3)))
    (_, form), *_ = bench.sent(Form)
    for node in (A, C):
        bench.driver.hear(node, Ready(JOB, form.world.generation))
    bench.pass_time(bench.ctx.timing.form_seconds)
    assert bench.phase == "freezing"
    evidence = bench.office.account.evidence()
    assert evidence == "b: the world did not form in 15 s; waiting for ['b']"


@pytest.mark.parametrize("came", [False, True])
@pytest.mark.parametrize("heard", [False, True])
def test_a_trainer_that_never_has_its_state_is_ended(came: bool, heard: bool) -> None:
    """It answers what it holds, but its script may hang, or its disk; once it tells of the world
    neither does."""
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(None), c=holds(point_of(3)))
    (_, form), *_ = bench.sent(Form)
    for node in (A, C):
        bench.driver.hear(node, Ready(JOB, form.world.generation))
    if came:
        bench.say("active", form.world, B)
    if heard:
        bench.progress(form.world, 3, B)
    bench.pass_time(bench.ctx.timing.load_seconds)
    assert bench.phase == "freezing"
    assert [node for node, _ in bench.sent(Hung)] == ([] if heard else [B])


def test_a_newcomer_that_cannot_take_the_state_is_left_out_for_a_while() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(point_of(3)), c=holds(None))
    world = bench.driver.world
    assert world is not None
    assert world.sources[2].startswith("peer:")
    bench.driver.hear(C, fault(world, C, "state_unavailable", "nobody gave it"))
    assert not bench.office.trust.fit(C)
    assert bench.office.trust.fit(B)


@pytest.mark.parametrize(("strict", "phase"), [(False, "forming"), (True, "waiting")])
def test_a_node_that_joins_voids_a_world_that_forms_only_where_orders_may_be_refused(
    strict: bool, phase: str
) -> None:
    bench = Bench(A, B, strict=strict)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None))
    assert bench.phase == "forming"
    bench.driver.on_view(View(Tag(2, ME, "w"), (A, B, C)), ())
    assert bench.phase == phase


def test_a_member_that_may_have_missed_its_order_voids_it() -> None:
    bench = Bench(A, B)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None))
    bench.driver.on_view(View(Tag(2, ME, "w"), (A, B)), (), missed=(B,))
    assert bench.phase == "waiting"


def test_with_strict_partitions_most_know_of_a_world_before_it_forms() -> None:
    bench = Bench(A, B, C, most=1, strict=True)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    assert [node for node, _ in bench.sent(Notice)] == [A, B, C]
    assert bench.sent(Form) == []
    world = bench.driver.world
    assert world is not None
    bench.driver.hear(B, Noted(JOB, world.generation))
    assert [node for node, _ in bench.sent(Form)] == [A]
    bench.driver.hear(C, Noted(JOB, world.generation))
    assert bench.sent(Form) == [], "it was ordered once"


def test_a_world_is_announced_to_its_members_with_what_it_took() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    (_, form), *_ = bench.sent(Form)
    bench.ctx.now += 1.5
    for node in bench.members:
        bench.driver.hear(node, Ready(JOB, form.world.generation))
    told = Formed(JOB, form.world.generation)
    assert bench.sent(Formed) == [(A, told), (B, told), (C, told)]
    (event,) = bench.told("world_formed")
    assert (event.fields["seconds"], event.fields["rung"]) == (1.5, "start")


def test_who_says_twice_that_it_is_ready_counts_once() -> None:
    bench = Bench(A, B)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None))
    (_, form), *_ = bench.sent(Form)
    for _ in range(2):
        bench.driver.hear(A, Ready(JOB, form.world.generation))
    assert bench.phase == "forming"


def test_a_state_that_is_taken_has_longer_than_a_ring_that_comes_up() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(None), c=holds(point_of(3)))
    (_, form), *_ = bench.sent(Form)
    bench.progress(form.world, 3, B)  # it has come to take its state
    for node in (A, C):
        bench.driver.hear(node, Ready(JOB, form.world.generation))
    since = bench.ctx.now
    bench.pass_time(bench.ctx.timing.form_seconds)
    assert bench.phase == "forming"
    assert since + bench.ctx.timing.load_seconds in bench.driver.deadlines()
    bench.pass_time(bench.ctx.timing.load_seconds - bench.ctx.timing.form_seconds)
    assert bench.phase == "freezing"


@pytest.mark.parametrize(("culprit", "phase"), [(B, "waiting"), (C, "forming")])
def test_only_a_members_fault_breaks_a_world_that_forms(culprit: NodeId, phase: str) -> None:
    bench = Bench(most=2)
    bench.say("ready")
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    (_, form), *_ = bench.sent(Form)
    assert form.world.members == (A, B)
    bench.driver.hear(culprit, fault(form.world, culprit))
    assert bench.phase == phase


def test_who_keeps_its_state_is_not_left_out_for_want_of_one() -> None:
    bench = Bench()
    bench.say("ready")
    bench.answer(a=holds(point_of(3)), b=holds(point_of(3)), c=holds(point_of(3)))
    world = bench.driver.world
    assert world is not None
    bench.driver.hear(B, fault(world, B, "state_unavailable", "it has lost it"))
    assert bench.phase == "freezing"
    assert bench.office.trust.fit(B)
