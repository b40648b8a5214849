"""The training thread's way to its reducer, and the pipe that wakes it where it waits for that."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticd.ipc.chunks import ReducerLink
from elasticd.ipc.plan import ChunkPlan
from elasticd.train.steps.seat import Parts
from elasticd.train.world import TrainerWorld


class ReducerPath:
    """One world's at a time. Any thread may :meth:`wake`; the rest is the training thread's."""

    def __init__(self) -> None:
        self._link: ReducerLink | None = None
        self._wake_fd, self._wake_write_fd = os.pipe()
        os.set_blocking(self._wake_fd, False)
        os.set_blocking(self._wake_write_fd, False)

    def wake(self) -> None:
        """Whoever waits for the reducer falls out of that with GenerationLost."""
        os.write(self._wake_write_fd, b"x")

    def rest(self) -> None:
        """Forget who was woken. The caller holds the protocol's lock."""
        try:
            while os.read(self._wake_fd, 4096):
                pass
        except BlockingIOError:
            pass

    def open(self, world: TrainerWorld, fds: Sequence[int]) -> None:
        """Chunk memory and data socket of ``world``; none in a world of one."""
        if world.size > 1:
            memory, data = fds
            self._link = ReducerLink(
                memory, data, world.generation, world.rank, world.size, world.reduction
            )

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        """Raises GenerationLost."""
        assert self._link is not None
        self._link.reduce(step, plan, parts, out, self._wake_fd)

    def barrier(self, step: int) -> None:
        """Raises GenerationLost."""
        assert self._link is not None
        self._link.barrier(step, self._wake_fd)
