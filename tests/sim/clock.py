"""A node's clocks: the monotonic one drifts, the wall clock also jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .cluster import Cluster

_WALL_SECONDS = 1_800_000_000.0


@dataclass(slots=True)
class Clock:
    """``rate`` is the node's own seconds in a true second."""

    cluster: Cluster
    offset_seconds: float
    rate: float = 1.0
    step_seconds: float = 0.0
    """By how much the wall clock was set forward in all."""
    _since: float = 0.0

    def monotonic(self) -> float:
        return self.offset_seconds + (self.cluster.now - self._since) * self.rate

    def wall(self) -> float:
        return _WALL_SECONDS + self.cluster.now + self.step_seconds

    def drift(self, rate: float) -> None:
        """Run at another speed from now on, without a jump."""
        self.offset_seconds, self._since = self.monotonic(), self.cluster.now
        self.rate = rate

    def true_seconds(self, own_seconds: float) -> float:
        """How long it really takes until this clock has gone on by ``own_seconds``."""
        return own_seconds / self.rate
