"""States that a process can't take, and says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.nn as nn
import mlx.optimizers as optim
import pytest

from elasticd.checkpoints.codec import write_memory
from elasticd.errors import GenerationLost
from elasticd.train.states.state import Own, TrainingState
from elasticd.train.states.updates import Reduced, Update, packed
from elasticd.train.steps.entrance import Entrance
from elasticd.train.steps.grains import Grains
from elasticd.train.steps.seat import Files
from elasticd.train.steps.standing import Standing
from elasticd.train.world import TrainerWorld
from elasticd.types import NodeId, Point, Tag
from tests.unit.train.cohort import spec
from tests.unit.train.protocol.worlds import START, world

TAG = Tag(1, NodeId("a"), "x")


class Seat(SimpleNamespace):
    """A process whose world brings it the state that it held itself, before its loop or in it."""

    def __init__(self, set_up: bool) -> None:
        super().__init__(spec=spec(), said=[])
        self.state = TrainingState(nn.Linear(2, 2), None)
        self.brought = self.state.capture(START, 0, 0, set_up=set_up)

    def files(self, _: Any) -> Files:
        return Files((write_memory(self.brought.tensors, self.brought.metadata()),))

    def unloaded(self, reason: str, *, spent: bool = False) -> None:
        self.said.append((reason, spent))

    def end_load(self, point: Point, *, complete: bool) -> None:
        self.said.append((point, complete))

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


@pytest.mark.parametrize("past_the_top", [False, True])
@pytest.mark.parametrize("set_up", [False, True])
def test_a_state_from_before_the_loop_is_for_a_process_that_has_not_begun_it(
    past_the_top: bool, set_up: bool
) -> None:
    """Code above the loop has to run on it, and runs once in a process."""
    seat: Any = Seat(set_up)
    standing = Standing(seat, seat.state)
    entrance = Entrance(standing, Grains(standing, lambda _: None))
    standing.set_up = past_the_top
    here = TrainerWorld.as_given(world(1, START, "load"))
    if past_the_top and not set_up:
        with pytest.raises(GenerationLost, match="a new trainer runs what stands above it"):
            entrance.settle(here)
        ((_, spent),) = seat.said
        assert spent and standing.set_up
    else:
        entrance.settle(here)
        assert seat.said == [(START, set_up)] and standing.set_up == set_up


def test_with_the_first_update_comes_what_the_script_did_above_its_loop() -> None:
    """Who has taken the state from before the loop shall not run that over the newer one."""
    seat: Any = Seat(set_up=False)
    seat.state = TrainingState(nn.Linear(2, 2), optim.SGD(0.1))
    standing = Standing(seat, seat.state)
    entrance = Entrance(standing, Grains(standing, lambda _: None))
    entrance.settle(TrainerWorld.as_given(world(1, START, "load")))
    nothing, left = Own({}, None), seat.state.capture(START, 0, 0)
    reduced = Reduced(0.5, 1.0, {}, {}, seat.state.parameters())
    first = Update.of(START, TAG, True, reduced, reduced.gradients)
    assert first is not None
    seat.files = lambda _: Files(
        (write_memory(*packed([first.with_body(nothing, nothing, left)])),)
    )
    point = Point(START.lineage, first.step, first.stamp)
    entrance.settle(TrainerWorld.as_given(world(2, point, "load")))
    assert seat.said == [(START, False), (point, True)] and standing.set_up
