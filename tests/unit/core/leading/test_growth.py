"""How a trainer outside a world gets its state, while the world trains on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.growth import Growth
from elasticd.core.words.effects import Emit, Send
from elasticd.core.words.worlds import Lend, Lent, Prepare, Prepared, Progress
from elasticd.types import NodeId
from tests.unit.core.leading.bench import (
    GENERATION,
    JOB,
    ME,
    STEPS,
    A,
    B,
    C,
    point_of,
    world_of,
)

D = NodeId("d")


def progress(step: int) -> Progress:
    stamp = point_of(step).stamp
    return Progress(JOB, GENERATION, step, stamp, step, 0.5, "compute", 1.0, 0, {})


class Door:
    """A world of a and b; c and d want to enter."""

    def __init__(self) -> None:
        self.ctx = Context(ME, lambda: "0000", now=50.0)
        self.growth = Growth(self.ctx, JOB)
        self.growth.enter(world_of(A, B))

    def at(self, step: int, *candidates: NodeId) -> list[NodeId]:
        """The members have reached a step: who may enter."""
        told = progress(step)
        return self.growth.ready(candidates or (C,), {A: told, B: told}, STEPS)

    def sent(self, kind: type[Any]) -> list[tuple[NodeId, Any]]:
        found = [f for f in self.ctx.effects if isinstance(f, Send) and isinstance(f.message, kind)]
        self.ctx.effects.clear()
        return [(f.to, f.message) for f in found]

    def lent(self, step: int, reason: str = "", never: bool = False) -> None:
        for node in (A, B):
            stamp = point_of(step).stamp
            self.growth.on_lent(node, Lent(JOB, GENERATION, step, stamp, reason, never))

    def prepared(self, node: NodeId, step: int | None, replays: bool = True) -> None:
        point = point_of(step) if step is not None else None
        reason = "" if point else "the network broke"
        self.growth.on_prepared(node, Prepared(JOB, GENERATION, point, reason, replays))


def test_a_state_is_lent_of_a_step_that_nobody_has_reached() -> None:
    door = Door()
    assert door.at(10) == []
    assert [(n, order.step, order.log) for n, order in door.sent(Lend)] == [
        (A, 12, True),
        (B, 12, True),
    ]
    assert door.at(11) == []
    assert door.sent(Lend) == [], "it was said once"


def test_where_chips_differ_it_takes_the_state_from_the_one_with_which_it_is_compared() -> None:
    door = Door()
    door.growth.enter(replace(world_of(A, B), whole=True))
    door.at(10)
    door.lent(12)
    ((_, order),) = door.sent(Prepare)
    assert order.wanted.holders == (A,)


def test_a_newcomer_takes_the_state_from_all_who_have_it_and_enters_a_step_behind() -> None:
    door = Door()
    door.at(10)
    door.lent(12)
    ((node, order),) = door.sent(Prepare)
    assert (node, order.wanted.point, order.wanted.holders) == (C, point_of(12), (A, B))
    door.prepared(C, 12)
    assert door.at(13) == [C]


def test_who_is_further_behind_follows_with_what_it_lacks() -> None:
    door = Door()
    door.at(10)
    door.lent(12)
    door.prepared(C, 12)
    door.ctx.effects.clear()
    assert door.at(20) == []
    ((node, order),) = door.sent(Prepare)
    assert (node, order.wanted.since, order.wanted.point.step) == (C, point_of(12), 20)
    assert len(order.wanted.holders) == 1
    door.prepared(C, 20)
    assert door.at(21) == [C]


def test_the_world_stops_once_for_all_who_are_nearly_ready() -> None:
    door = Door()
    door.at(10, C, D)
    door.lent(12)
    door.prepared(C, 12)
    assert door.at(13, C, D) == [], "d still takes the state"
    assert door.ctx.now + door.ctx.timing.together_seconds in door.growth.deadlines()
    door.ctx.now += door.ctx.timing.together_seconds
    assert door.at(13, C, D) == [C]


def test_after_three_states_that_could_not_be_had_the_world_stops_and_gives_one() -> None:
    door = Door()
    for step in (10, 20, 30):
        assert door.at(step) == []
        door.lent(step + 2)
        door.prepared(C, None)
    assert door.at(40) == [C]


def test_a_state_that_nobody_can_lend_is_tried_further_ahead() -> None:
    door = Door()
    door.at(10)
    door.lent(12, reason="it was too late")
    door.ctx.effects.clear()
    door.at(13)
    assert [order.step for _, order in door.sent(Lend)] == [17, 17]


def test_where_memory_is_short_the_world_stops_at_once() -> None:
    door = Door()
    door.at(10)
    door.lent(12, reason="memory is short", never=True)
    assert door.growth.plain_reason == "memory is short"
    assert door.at(11) == [C]


def test_who_cannot_apply_updates_enters_with_the_whole_state() -> None:
    door = Door()
    door.at(10)
    door.lent(12)
    door.prepared(C, 12, replays=False)
    assert door.at(20) == [C]


def test_nothing_is_lent_when_the_job_is_about_to_end() -> None:
    door = Door()
    assert door.at(STEPS - 2) == []
    assert door.sent(Lend) == []


def test_a_newcomer_that_has_gone_leaves_nothing_lent() -> None:
    door = Door()
    door.at(10)
    door.ctx.effects.clear()
    assert door.growth.ready((), {A: progress(11), B: progress(11)}, STEPS) == []
    assert [(order.step, order.log) for _, order in door.sent(Lend)] == [(None, False)] * 2


@pytest.mark.parametrize("stage", ["lent", "fetching", "follows"])
def test_who_comes_in_place_of_one_that_has_gone_is_lent_a_state(stage: str) -> None:
    door = Door()
    door.at(10)
    if stage != "lent":
        door.lent(12)
    if stage == "follows":
        door.prepared(C, 12)
    door.ctx.effects.clear()
    assert door.at(20, D) == []
    orders = [(order.step, order.log) for _, order in door.sent(Lend)]
    assert orders == [(None, True)] * 2 + [(22, True)] * 2
    door.lent(22)
    door.prepared(D, 22)
    assert door.at(23, D) == [D]


def test_one_that_took_too_long_keeps_no_other_waiting() -> None:
    door = Door()
    door.at(10)
    door.ctx.now += door.ctx.timing.load_seconds
    door.growth.overdue()
    door.at(20, D)
    assert [order.step for _, order in door.sent(Lend)][-1] == 22


def test_answers_of_another_world_do_not_count() -> None:
    door = Door()
    door.at(10)
    door.growth.enter(world_of(A, B, generation=replace(GENERATION, counter=9)))
    door.lent(12)
    assert door.sent(Prepare) == []


def test_who_takes_too_long_is_told_once() -> None:
    door = Door()
    door.at(10)
    door.ctx.now += door.ctx.timing.load_seconds
    assert [door.growth.overdue(), door.growth.overdue()] == [[C], []]


def test_what_letting_somebody_in_has_cost_is_told_once() -> None:
    door = Door()
    door.growth.stopped_at = 49.5
    grown = replace(world_of(A, B, C), rung="grow", sources=("keep", "keep", "peer:a"))
    for _ in range(2):
        door.growth.entered(grown)
    (event,) = [f for f in door.ctx.effects if isinstance(f, Emit)]
    assert event.kind == "growth_finished"
    assert event.fields["pause_seconds"] == 0.5
    assert event.fields["whole_states"] == 1
