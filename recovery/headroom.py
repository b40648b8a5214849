"""What a node gives up before memory runs out, while that can still be done in peace.

Cheapest first: the spare trainer, the caches, and, of the whole job, activations. Each only when
what was given up before did not help: headroom went on falling. What costs bits is never given up
on a foreboding, nor what costs speed on a mere warning: a Mac may warn for hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Gift = Literal["spare", "caches", "recompute"]
FALLEN = 0.9
"""Headroom that is above this part of what it was at the last sign holds."""

QUIET_SECONDS, LONGEST_QUIET_SECONDS = 60.0, 3600.0
"""For so long memory has to be enough before anything is had again that was given up: twice as long
each time, as it may be just that which lets it run short again, and at most so long."""
FORGIVEN_SECONDS = 2 * LONGEST_QUIET_SECONDS
"""After so long without a sign earlier shortages don't count any more."""

_ORDER: tuple[Gift, ...] = ("spare", "caches", "recompute")
_MOST_DOUBLINGS = 6


@dataclass(slots=True)
class Headroom:
    """Of one node and job. What was given up counts from the first sign of short memory until there
    was none for a while."""

    given: int = 0
    """How many of the gifts were given."""
    left_bytes: int | None = None
    """At the last one."""
    mild: bool = False
    """The last one was given on a warning."""
    shortages: int = 0
    """How many there were, none of them long after another."""
    short_at: float = 0.0
    """When memory was short last."""

    def quiet_seconds(self, now: float, *, begins: bool) -> float:
        """Memory is short now: for so long it has to be enough. ``begins``: it was until now."""
        if begins:
            forgiven = now - self.short_at > FORGIVEN_SECONDS
            self.shortages = 1 if forgiven else self.shortages + 1
        self.short_at = now
        doublings = min(max(0, self.shortages - 1), _MOST_DOUBLINGS)
        return min(QUIET_SECONDS * 2.0**doublings, LONGEST_QUIET_SECONDS)

    def sign(self, left_bytes: int, has_spare: bool, mild: bool = False) -> Gift | None:
        """Memory is short, with so many bytes left: what to give up now, if anything. ``mild``: the
        system only warns."""
        worse = self.mild and not mild
        holds = self.left_bytes is not None and left_bytes > FALLEN * self.left_bytes
        if holds and not worse:
            return None
        if not self.given and not has_spare:
            self.given = 1
        if self.given == len(_ORDER) or (mild and _ORDER[self.given] == "recompute"):
            return None
        self.left_bytes, self.mild = left_bytes, mild
        self.given += 1
        return _ORDER[self.given - 1]

    def forget(self) -> None:
        """Memory is not short any more."""
        self.given, self.left_bytes, self.mild = 0, None, False
