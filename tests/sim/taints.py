"""What a trainer that had diverged has contributed to, and who knows of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticd.types import JobId, Stamp


@dataclass(slots=True)
class Taints:
    """Faults that spoil a trainer's state have numbers. They go into each sum to which it adds."""

    of: dict[Stamp, frozenset[int]] = field(default_factory=dict)
    """By the sums that led to a state."""
    known: list[tuple[object, frozenset[int]]] = field(default_factory=list)
    """Which of them the leaders' drivers have found."""
    told: set[JobId] = field(default_factory=set)
    """Jobs of which people know that they go on with such a state."""

    def reduced(self, parent: Stamp, stamp: Stamp, taint: frozenset[int]) -> None:
        """Trainers with that taint have come from one state to the next."""
        self.of[stamp] = self.of.get(parent, frozenset()) | taint

    def found(self, driver: object, taints: Iterable[frozenset[int]]) -> None:
        """A driver compares states, and lets nobody keep one that differs."""
        self.known.append((driver, frozenset[int]().union(*taints)))

    def trusted(self, driver: object, job: JobId, stamp: Stamp) -> str:
        """Why a driver should not go on with this state, or nothing."""
        known = frozenset[int]().union(*(taint for one, taint in self.known if one is driver))
        tainted = job not in self.told and known & self.of.get(stamp, frozenset())
        return "has sums of who diverged" if tainted else ""
