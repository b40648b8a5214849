"""States that a process can't take, and says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.nn as nn
import pytest

from elasticd.checkpoints.codec import write_memory
from elasticd.errors import GenerationLost
from elasticd.train.states.state import TrainingState
from elasticd.train.steps.entrance import Entrance
from elasticd.train.steps.grains import Grains
from elasticd.train.steps.seat import Files
from elasticd.train.steps.standing import Standing
from elasticd.train.world import TrainerWorld
from elasticd.types import Point
from tests.unit.train.cohort import spec
from tests.unit.train.protocol.worlds import START, world


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

    def end_load(self, point: Point) -> None:
        self.said.append(point)

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
        assert seat.said == [START] and standing.set_up == set_up
