"""The sums of the grains that this rank has computed, in the fixed tree.

A sum is evaluated as soon as it is made and lives until its step is reduced, so that a world which
breaks costs only the grains that were lost with their rank.
"""

from __future__ import annotations

from collections.abc import Iterable

import mlx.core as mx

from elasticd.recovery import tree
from elasticd.train.steps.layout import Vector
from elasticd.types import Range


def add(left: Vector, right: Vector) -> Vector:
    """Add two vectors, on the CPU: graphics chips flush the smallest numbers to zero, and the same
    node may elsewhere be added by a reducer."""
    return [mx.add(x, y, stream=mx.cpu) for x, y in zip(left, right, strict=True)]


class GrainSums:
    """Sums of tree nodes of one step, towards the nodes that this rank has to submit."""

    def __init__(self, grains: int) -> None:
        self.grains = grains
        self._sums: dict[Range, Vector] = {}
        self._wanted: tuple[Range, ...] = ()

    def aim(self, ranges: Iterable[Range]) -> None:
        """Take up a share: what was computed for it stays, what is not part of it goes."""
        self._wanted = tree.cover(ranges, self.grains)
        for node in list(self._sums):
            if not any(start <= node[0] and node[1] <= end for start, end in self._wanted):
                del self._sums[node]
        self._merge()

    def clear(self) -> None:
        """Forget the step's sums; the share stays."""
        self._sums.clear()

    def missing(self) -> list[int]:
        """The grains of the share that are in no sum, in order."""
        held = {grain for node in self._sums for grain in range(*node)}
        return [grain for node in self._wanted for grain in range(*node) if grain not in held]

    def add(self, grain: int, vector: Vector) -> None:
        """Take in one grain of the share, and evaluate every sum that it completes."""
        self._sums[grain, grain + 1] = vector
        del vector
        self._merge()
        for node, total in self._sums.items():
            if node[0] <= grain < node[1]:
                mx.eval(total)

    def _merge(self) -> None:
        tree.merge(self._sums, self._wanted, add)

    def parts(self) -> dict[Range, Vector]:
        """The sums to submit, by node.

        Raises:
            ValueError: grains are missing.
        """
        if self.missing():
            raise ValueError(f"grains {self.missing()} are missing")
        return {node: self._sums[node] for node in self._wanted}

    def total(self) -> Vector | None:
        """All of the share in one vector, added from left to right; None for an empty share."""
        result: Vector | None = None
        for part in self.parts().values():
            result = part if result is None else add(result, part)
        return result
