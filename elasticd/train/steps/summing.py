"""A step's sums over its world: what goes to the reducer, and what comes back."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.ipc.plan import ChunkPlan
from elasticd.recovery import tree
from elasticd.train.settling import settled
from elasticd.train.steps.grains import Grains
from elasticd.train.steps.layout import Layout, Vector
from elasticd.train.steps.seat import Seat
from elasticd.train.world import TrainerWorld


class Summing:
    """Keeps the buffer and the plan from step to step."""

    def __init__(self, seat: Seat, grains: Grains, settle: Callable[[], None] = settled) -> None:
        """``settle``: waits for the GPU, and raises what went wrong there."""
        self._seat, self._grains, self._settle = seat, grains, settle
        self._flat: mx.array | None = None
        self._plan: tuple[object, ChunkPlan] | None = None

    def give_back(self) -> None:
        """Memory is short."""
        self._flat = None

    def total(self, world: TrainerWorld, layout: Layout, step: int) -> Vector:
        """Over all grains of ``step``.

        Raises:
            GenerationLost: the world has ended; the grains' sums are kept.
            RuntimeError: the GPU has failed meanwhile: nothing has left this process.
        """
        self._settle()
        sums = self._grains.sums
        if world.size == 1:
            total = sums.total()
            assert total is not None
            return total
        plan = self._plan_for(world, step)
        if world.reduction == "fast":
            own = sums.total()
            parts = {} if own is None else {(0, self._grains.count): own}
        else:
            parts = sums.parts()
        views = {
            node: [_view(piece) for piece in part if piece.size] for node, part in parts.items()
        }
        if self._flat is None or self._flat.size != layout.size:
            self._flat = mx.zeros((layout.size,), mx.float32)
            mx.eval(self._flat)
        self._seat.reduce(step, plan, views, _view(self._flat))
        return layout.split(self._flat)

    def _plan_for(self, world: TrainerWorld, step: int) -> ChunkPlan:
        shares = world.shares_of(step)
        if self._plan is None or self._plan[0] is not shares:
            count = self._grains.count
            parts = tuple(tree.cover(share, count) for share in shares)
            self._plan = shares, ChunkPlan(count, parts)
        return self._plan[1]


def _view(array: mx.array) -> NDArray[np.float32]:
    """The buffer of an evaluated flat float32 array. Writing to it writes to the array."""
    return np.frombuffer(memoryview(array), np.float32)  # type: ignore[arg-type]
