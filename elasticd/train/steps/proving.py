"""Does a process that joins compute what the others do? Part of what a script keeps may be nowhere
but in its own variables, and who joins has never made them.

In the first step of a world in which somebody joins, newcomers and one member that has stayed
compute one grain alike; before the sums, its digests are compared, and when the body has run, those
of everybody's whole state. A newcomer waits for both, so that nothing wrong goes into a sum or a
shard.
"""

from __future__ import annotations

import contextlib

from elasticd.errors import GenerationLost
from elasticd.train.protocol.newcomers import joins, shown_grain, shows
from elasticd.train.states.shown import digests_of
from elasticd.train.states.state import Snapshot
from elasticd.train.steps.layout import Vector, vector_digest
from elasticd.train.steps.seat import Seat
from elasticd.train.world import TrainerWorld
from elasticd.types import Tag


class Proving:
    """What this process shows of the first step of a world."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._shown: Tag | None = None
        """In this world a grain was shown."""

    def grain(self, world: TrainerWorld | None, step: int) -> int | None:
        """The grain that is still to be shown in ``step``."""
        if world is None or not shows(world, "grain", step) or self._shown == world.generation:
            return None
        return shown_grain(world)

    def show_grain(self, world: TrainerWorld, step: int, grain: int, vector: Vector) -> None:
        """It was computed, and evaluated."""
        self._shown, pieces = world.generation, list(vector)
        name = f"grain {grain} of step {step}"
        self._seat.prove(world, "grain", lambda: {name: vector_digest(pieces)})

    def await_grain(self, world: TrainerWorld, step: int) -> None:
        """Before the step is reduced.

        Raises:
            GenerationLost: this process computes something else, or the world has ended otherwise.
        """
        if joins(world) and shows(world, "grain", step):
            self._seat.await_proof("grain")

    def body(self, world: TrainerWorld | None, snapshot: Snapshot | None) -> None:
        """A body has left this state. If it is that of the first step, show it, and wait until it
        is found to be right, or the world has ended."""
        if world is None or snapshot is None or not shows(world, "body", snapshot.point.step):
            return
        with contextlib.suppress(GenerationLost):
            self._seat.check()
            self._seat.prove(world, "body", lambda: digests_of(snapshot))
            if joins(world):
                self._seat.await_proof("body")
                self._seat.phase("user")
