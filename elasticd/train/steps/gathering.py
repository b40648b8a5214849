"""Bytes that members tell one another, by their reducers.

They go the way of the gradients, so a world that is lost shows as it does there. Three bytes are a
whole number that float32 holds exactly, and all but one member add zeros to it.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from elasticd.ipc.plan import ChunkPlan
from elasticd.train.steps.seat import Seat
from elasticd.train.world import TrainerWorld

_PER_FLOAT = 3
_MOST_FLOATS = 1 << 20
_MOST_BYTES = _PER_FLOAT * _MOST_FLOATS
"""Of one message; longer ones are sent in pieces."""
_WEIGHTS = np.array([1, 1 << 8, 1 << 16], np.float32)

Floats = NDArray[np.float32]


class Gathering:
    """Of one step in one world. All members call the same, in the same order; every method raises
    GenerationLost if the world has ended."""

    def __init__(self, seat: Seat, world: TrainerWorld, step: int) -> None:
        self._seat, self._world, self._step = seat, world, step
        grains = tuple((((rank, rank + 1),)) for rank in range(world.size))
        self._plan = ChunkPlan(world.size, grains)

    def numbers(self, mine: int) -> list[int]:
        """Each member's number, below 2**24, by rank."""
        vector = np.zeros(self._world.size, np.float32)
        vector[self._world.rank] = mine
        return [int(number) for number in self._sum(vector)]

    def messages(self, mine: bytes) -> list[bytes]:
        """Each member's message, below 2**24 bytes, by rank."""
        lengths = self.numbers(len(mine))
        sizes = [-(-length // _PER_FLOAT) for length in lengths]
        ends = list(accumulate(sizes))
        vector = np.zeros(sum(sizes), np.float32)
        rank = self._world.rank
        vector[ends[rank] - sizes[rank] : ends[rank]] = _as_floats(mine)
        every = range(0, len(vector), _MOST_FLOATS)
        pieces = [self._sum(vector[start : start + _MOST_FLOATS]) for start in every]
        content = _as_bytes(np.concatenate(pieces)) if pieces else b""
        starts = [_PER_FLOAT * (end - size) for end, size in zip(ends, sizes, strict=True)]
        return [content[at : at + n] for at, n in zip(starts, lengths, strict=True)]

    def told(self, source: int, content: bytes, length: int) -> bytes:
        """The ``content`` of the member ``source``, which is so long; others' is not looked at."""
        pieces = []
        for start in range(0, length, _MOST_BYTES):
            size = min(_MOST_BYTES, length - start)
            floats = np.zeros(-(-size // _PER_FLOAT), np.float32)
            if self._world.rank == source:
                floats = _as_floats(content[start : start + size])
            pieces.append(_as_bytes(self._sum(floats))[:size])
        return b"".join(pieces)

    def _sum(self, vector: Floats) -> Floats:
        total = np.zeros_like(vector)
        rank = self._world.rank
        self._seat.tell(self._step, self._plan, {(rank, rank + 1): [vector]}, total)
        return total


def _as_floats(content: bytes) -> Floats:
    padded = content + bytes(-len(content) % _PER_FLOAT)
    digits = np.frombuffer(padded, np.uint8).reshape(-1, _PER_FLOAT)
    floats: Floats = digits.astype(np.float32) @ _WEIGHTS
    return floats


def _as_bytes(floats: Floats) -> bytes:
    numbers = floats.astype("<u4")
    return numbers.view(np.uint8).reshape(-1, 4)[:, :_PER_FLOAT].tobytes()
