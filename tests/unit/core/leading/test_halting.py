"""How a paused job comes to rest: at one step for all, which nobody has gone past."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.halting import Halting
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Halt, Progress
from elasticd.types import NodeId, Tag, WorkPhase
from tests.unit.core.leading.bench import JOB, ME, STAMP, STEPS, A, B, C, world_of
from tests.unit.core.leading.outbox import sent

WORLD = world_of(A, B, C)
NEXT = replace(WORLD, generation=Tag(9, A, "later"))


@pytest.fixture
def ctx() -> Context:
    return Context(ME, lambda: "0000", now=50.0)


@pytest.fixture
def halting(ctx: Context) -> Halting:
    return Halting(ctx, JOB)


def at(step: int, phase: WorkPhase = "compute", begun: bool = False) -> Progress:
    """A member that has applied so many steps, and may have begun the next."""
    return Progress(
        JOB, WORLD.generation, step, STAMP, step, 0.5, phase, 1.0, 0, {}, begun=begun
    )  # fmt: skip


def all_at(step: int, phase: WorkPhase = "compute") -> dict[NodeId, Progress]:
    return {node: at(step, phase) for node in WORLD.members}


def halts(ctx: Context, world: World = WORLD) -> list[int]:
    """The step that every member was told since the last time; each is told the same."""
    told = sent(ctx, Halt)
    assert all(halt.generation == world.generation for _, halt in told)
    steps = [halt.step for node, halt in told if node == A]
    assert [(node, halt.step) for node, halt in told] == [
        (node, step) for step in steps for node in world.members
    ]
    return steps


def test_the_step_lies_ahead_of_the_furthest_member(halting: Halting, ctx: Context) -> None:
    halting.order(WORLD, {**all_at(3), B: at(5)}, STEPS)
    assert halts(ctx) == [7]


def test_nothing_is_named_before_every_member_has_told_where_it_is(
    halting: Halting, ctx: Context
) -> None:
    halting.order(WORLD, {A: at(3), B: at(3)}, STEPS)
    assert halts(ctx) == []


def test_a_step_is_named_once_while_all_may_still_halt_there(
    halting: Halting, ctx: Context
) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    halting.order(WORLD, all_at(5), STEPS)
    assert halts(ctx) == [5]


@pytest.mark.parametrize("late", [at(5, begun=True), at(6)])
def test_a_later_one_is_named_where_a_member_has_gone_past_it(
    halting: Halting, ctx: Context, late: Progress
) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    halting.order(WORLD, {**all_at(5), C: late}, STEPS)
    assert halts(ctx) == [5, late.step + 4]


def test_steps_that_are_faster_than_messages_halt_in_the_end(
    halting: Halting, ctx: Context
) -> None:
    step, late = 100, 37  # so many steps are made until a member hears of an order
    for _ in range(8):
        halting.order(WORLD, all_at(step), 100_000)
        step += late
        if halting.step >= step:
            break
    assert halts(ctx)[-1] >= step
    halting.reset()
    halting.order(WORLD, all_at(step), 100_000)
    assert halts(ctx) == [step + 2], "the next pause begins near again"


def test_another_world_is_told_anew(halting: Halting, ctx: Context) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    assert halts(ctx) == [5]
    halting.order(NEXT, all_at(3), STEPS)
    assert halts(ctx, NEXT) == [5]


def test_what_was_told_in_an_older_view_is_told_again(halting: Halting, ctx: Context) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    halting.reset()
    halting.order(WORLD, all_at(3), STEPS)
    assert halts(ctx) == [5, 5]


def test_close_to_its_end_the_job_ends_by_itself(halting: Halting, ctx: Context) -> None:
    halting.order(WORLD, all_at(STEPS - 2), STEPS)
    assert halts(ctx) == []
    halting.order(WORLD, all_at(STEPS - 3), STEPS)
    assert halts(ctx) == [STEPS - 1]


def test_who_was_told_a_step_that_is_too_late_is_told_to_go_on(
    halting: Halting, ctx: Context
) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    halting.order(WORLD, {**all_at(STEPS - 1), A: at(STEPS - 1, begun=True)}, STEPS)
    assert halts(ctx) == [5, -1]


def test_all_have_halted_once_each_stands_at_that_step(halting: Halting) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    there = all_at(5, "paused")
    assert halting.reached(WORLD, there)
    assert not halting.reached(WORLD, {**there, B: at(5)}), "it may go on"
    assert not halting.reached(WORLD, {**there, B: at(4, "paused")}), "it halts elsewhere"
    assert not halting.reached(WORLD, {A: there[A], B: there[B]}), "c has not said"
    assert not halting.reached(NEXT, there), "that one was told nothing"


def test_nobody_has_halted_where_nobody_was_told_to(halting: Halting) -> None:
    assert not halting.reached(WORLD, all_at(5, "paused"))


def test_a_job_that_goes_on_is_told_so_once(halting: Halting, ctx: Context) -> None:
    halting.order(WORLD, all_at(3), STEPS)
    for _ in range(3):
        halting.lift(WORLD, all_at(5, "paused"))
    assert halts(ctx) == [5, -1]


def test_members_that_an_earlier_leader_has_halted_are_let_go_on(
    halting: Halting, ctx: Context
) -> None:
    """Its order to go on may have died with it, or been lost."""
    for _ in range(3):
        halting.lift(WORLD, {**all_at(5), B: at(5, "paused")})
    assert halts(ctx) == [-1]


def test_members_that_nobody_has_halted_are_told_nothing(halting: Halting, ctx: Context) -> None:
    halting.lift(WORLD, all_at(5))
    assert halts(ctx) == []
