"""The state in place: what it is called, and who may have it."""

from __future__ import annotations

import time
from dataclasses import replace

from elasticd.train.states.state import Snapshot, TrainingState
from elasticd.train.steps.seat import Seat
from elasticd.types import Point


class Standing:
    """``state`` is the model, the optimizer and what else the script tracks."""

    def __init__(self, seat: Seat, state: TrainingState) -> None:
        spec = seat.spec
        self.seat, self.state = seat, state
        self.seed, self._global_size = spec.train.seed, spec.batch.global_
        self.point: Point | None = None
        self.snapshot: Snapshot | None = None
        """While nothing changes the state."""
        self.stall_seconds = 0.0
        """What the newest snapshot has cost."""
        self._body_matters = False

    @property
    def step(self) -> int:
        """The step after it, which is computed from it."""
        assert self.point is not None
        return self.point.step + 1

    @property
    def lazily(self) -> bool:
        """Whether what the script's own code does after a step is part of the state, which nobody
        can be given before that is done."""
        return self._body_matters or self.state.tracks

    def publish(self, *, loaded: bool = False) -> None:
        """It can be read from now on."""
        assert self.point is not None
        started = time.monotonic()
        samples = self.point.step * self._global_size
        self.snapshot = self.state.capture(self.point, self.seed, samples)
        self.stall_seconds = time.monotonic() - started
        alone = not self.lazily
        self.seat.replays(gives=alone, takes=alone and self.state.optimizer is not None)
        self.seat.hold(self.snapshot, loaded=loaded)

    def keep(self, point: Point) -> None:
        """A world starts from it, perhaps in another lineage; may raise GenerationLost."""
        self.seat.adopt(point)
        self.point = point
        assert self.snapshot is not None
        self.snapshot = replace(self.snapshot, point=point)
        self.seat.hold(self.snapshot)

    def end_body(self) -> None:
        """The script's code after a step is done: the state is what it left."""
        before = self.snapshot
        self.publish()
        after = self.snapshot
        assert after is not None
        if before is not None and self.point is not None and self.point.step > 0:
            self._body_matters = self._body_matters or any(
                before.tensors.get(name) is not array for name, array in after.tensors.items()
            )
