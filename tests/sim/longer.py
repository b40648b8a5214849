"""Steps that take longer than those before: longer samples, say, or another compilation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Longer:
    """Of every job of a run: each ``every``-th step from ``first`` on takes ``seconds`` a grain, or
    to be reduced."""

    first: int
    seconds: float
    every: int = 1
    reducing: bool = False

    def meets(self, step: int) -> bool:
        """Whether that step takes longer."""
        return step >= self.first and (step - self.first) % self.every == 0
