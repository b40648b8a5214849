"""What a node gives up before memory runs out, while that can still be done in peace.

Cheapest first: the spare trainer, the caches, and, of the whole job, activations. Each only when
what was given up before did not help: headroom went on falling. What costs bits is never given up
on a foreboding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Gift = Literal["spare", "caches", "recompute"]
FALLEN = 0.9
"""Headroom that is above this part of what it was at the last sign holds."""

_ORDER: tuple[Gift, ...] = ("spare", "caches", "recompute")


@dataclass(slots=True)
class Headroom:
    """Of one node and job, from the first sign of short memory until there was none for a while."""

    given: int = 0
    """How many of the gifts were given."""
    left_bytes: int | None = None
    """At the last one."""

    def sign(self, left_bytes: int, has_spare: bool) -> Gift | None:
        """Memory is short, with so many bytes left: what to give up now, if anything."""
        if self.left_bytes is not None and left_bytes > FALLEN * self.left_bytes:
            return None
        if not self.given and not has_spare:
            self.given = 1
        if self.given == len(_ORDER):
            return None
        self.left_bytes = left_bytes
        self.given += 1
        return _ORDER[self.given - 1]

    def forget(self) -> None:
        """Memory is not short any more."""
        self.given, self.left_bytes = 0, None
