"""A daemon that spins does no work, and is a bug at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticd.core.words import effects as e

FORMED = ("view_formed", "primary_formed")
"""Records by which a view is in force."""
_TICKS_A_SECOND = 300
_STEPS_A_SECOND = 6000
_VIEWS_A_SECOND = 20


@dataclass(slots=True)
class Pace:
    """Invariant 6, the part that is a bug at once: a daemon that spins."""

    second: int = -1
    steps: int = 0
    ticks: int = 0
    views: int = 0

    def stepped(self, now: float, event: e.Event, effects: Sequence[e.Effect]) -> str:
        if int(now) != self.second:
            self.second, self.steps, self.ticks, self.views = int(now), 0, 0, 0
        self.steps += 1
        self.views += sum(isinstance(f, e.Persist) and f.kind in FORMED for f in effects)
        if self.views > _VIEWS_A_SECOND:
            return f"{self.views} views within a second"
        self.ticks += isinstance(event, e.Tick)
        if self.ticks > _TICKS_A_SECOND:
            return f"{self.ticks} timers fired within a second"
        if self.steps > _STEPS_A_SECOND:
            return f"{self.steps} events within a second"
        return ""
