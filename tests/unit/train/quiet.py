"""What a seat of a cohort only keeps, or passes over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx

from elasticd.train.states.state import Snapshot
from elasticd.train.steps.layout import vector_digest
from elasticd.train.steps.seat import Delivery
from elasticd.train.world import TrainerWorld
from elasticd.types import NanCure

_STREAM = mx.new_thread_unsafe_stream(mx.default_device())


def share_a_stream() -> None:
    """Let this thread compute where all ranks do, of which one runs at a time. MLX makes a stream
    for each thread, with a thread of its own that never ends, and to set the limit of its cache it
    waits for all of them."""
    mx.set_default_stream(_STREAM)


class Quiet:
    """Nobody waits for any of this."""

    def __init__(self) -> None:
        self.checkpoints: list[tuple[int, str]] = []
        self.shown: list[tuple[int, int, str]] = []
        self.rechecks: list[tuple[int, int, str]] = []
        self.phases: list[str] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.rehearsed = False
        """It had computed something by the time that it was prepared."""

    def prepared(self, delivery: Delivery, reason: str) -> None:
        assert not reason, reason
        self.rehearsed = "compute" in self.phases

    def idle_since(self, delivery: Delivery) -> bool:
        return True

    def spoilt(self, reason: str) -> None:
        raise AssertionError(reason)

    def unloaded(self, reason: str, *, spent: bool = False) -> None:
        raise AssertionError(reason)

    def checkpoint(self, world: TrainerWorld, snapshot: Snapshot, stall_seconds: float) -> None:
        self.checkpoints.append((snapshot.point.step, snapshot.digest()))

    def refuse(self, reason: str, *, unfit: bool = False) -> None:
        raise AssertionError(reason)

    def strain(self) -> None:
        pass

    def out_of_memory(self, evidence: str) -> bool:
        return False

    def not_finite(self, step: int, loss: str, policy: NanCure) -> None:
        pass

    def verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        pass

    def rechecked(
        self, world: TrainerWorld, step: int, grain: int, vector: Sequence[mx.array]
    ) -> None:
        self.rechecks.append((step, grain, vector_digest(vector)))

    def sampled(self, world: TrainerWorld, step: int, at: int, digest: str, name: str) -> None:
        self.shown.append((step, at, digest))

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        pass

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def show(self, step: int, values: Mapping[str, float]) -> None:
        if values:
            self.logged.append((step, dict(values)))
