"""Which samples a grain holds: a pure function of (seed, step, grain) and the dataset's length.

Sample i of step s (from 1) is position ``(s - 1) * global + i`` of an endless concatenation of
epoch permutations. The permutation is our own, so that no library's update changes a running job:
a keyed Feistel network on a square just larger than the dataset, walked until it lands inside
(Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
"""The finalizer of splitmix64 (Steele, Lea, Flood, 2014)."""
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


@dataclass(frozen=True)
class Permutation:
    """A bijection of ``range(length)`` for one (seed, epoch)."""

    length: int
    seed: int
    epoch: int

    def __post_init__(self) -> None:
        if not 1 <= self.length < 2**60:
            raise ValueError(f"a dataset of {self.length} samples can't be sampled")

    @cached_property
    def _keys(self) -> NDArray[np.uint64]:
        text = f"permutation\0{self.seed}\0{self.epoch}".encode()
        material = hashlib.shake_256(text).digest(8 * _ROUNDS)
        return np.frombuffer(material, "<u8").astype(np.uint64)

    @cached_property
    def _side(self) -> np.uint64:
        root = math.isqrt(self.length - 1) + 1
        return np.uint64(root)

    def __call__(self, positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Where each of ``positions`` (all below ``length``) goes."""
        values = self._once(positions)
        outside = values >= self.length
        while outside.any():
            values[outside] = self._once(values[outside])
            outside = values >= self.length
        return values

    def _once(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = np.divmod(values, self._side)
        for key in self._keys:
            left, right = right, (left + _mix(right + key) % self._side) % self._side
        result: NDArray[np.uint64] = left * self._side + right
        return result


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> _SHIFTS[0])) * _MULTIPLIERS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return values ^ (values >> _SHIFTS[2])


_permutation = lru_cache(maxsize=4)(Permutation)


@dataclass(frozen=True)
class Batches:
    """How global batches are cut: ``global_size`` samples a step, ``micro`` of them a grain."""

    global_size: int
    micro: int

    @property
    def grains(self) -> int:
        """Grains in a global batch; the last may be smaller."""
        return -(-self.global_size // self.micro)

    def positions(self, step: int, grain: int) -> range:
        """The positions, in the endless stream of samples, of ``grain`` of ``step`` (from 1).

        Raises:
            ValueError: there is no such step or grain.
        """
        if step < 1 or not 0 <= grain < self.grains:
            raise ValueError(f"no grain {grain} of {self.grains} in step {step}")
        first = (step - 1) * self.global_size
        start = first + grain * self.micro
        return range(start, min(start + self.micro, first + self.global_size))


def indices(positions: range, length: int, seed: int) -> list[int]:
    """The indices, into a dataset of ``length`` samples, at ``positions`` of the endless stream."""
    found: list[int] = []
    position = positions.start
    while position < positions.stop:
        epoch, offset = divmod(position, length)
        count = min(positions.stop - position, length - offset)
        wanted = np.arange(offset, offset + count, dtype=np.uint64)
        found += _permutation(length, seed, epoch)(wanted).tolist()
        position += count
    return found


class ComingGrains:
    """Which grains a rank needs next, if it goes on as in the step before."""

    def __init__(self) -> None:
        self._step = 0
        self._before: list[int] = []
        self._now: list[int] = []

    def after(self, step: int, grain: int) -> Iterator[tuple[int, int]]:
        """It takes ``grain`` of ``step``. What comes then, without an end; or nothing, if that was
        not one of its grains."""
        if step != self._step:
            self._step, self._before, self._now = step, self._now, []
        if grain not in self._now:
            self._now.append(grain)
        return _from(step, grain, self._before)


def _from(step: int, grain: int, course: list[int]) -> Iterator[tuple[int, int]]:
    if grain not in course:
        return
    yield from ((step, each) for each in course[course.index(grain) + 1 :])
    while True:
        step += 1
        yield from ((step, each) for each in course)
