"""Who listens to whom in a view too large for everybody to hear everybody.

The members stand in several rings, each in an order of its own that everybody computes alike from
their names; in each a node listens to its successor. That graph is an expander (Rapid, ATC'18):
a node that is gone has many observers, and one observer that errs convinces nobody. Observers raise
alarms; who leads counts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from elasticd.types import NodeId

MESH_NODES = 64
"""Up to this size everybody hears everybody."""
RINGS = 8
QUORUM = 3
"""So many observers must miss a node before it is dead."""
ALARM_SECONDS = 2.0
"""For so long an alarm counts; observers repeat theirs."""
GATHER_SECONDS = 0.5
"""A leader waits this long for the quorum of what others have seen: many may die at once."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """One node's place. ``subjects``: whom it listens to; ``observers``: who listen to it."""

    subjects: tuple[NodeId, ...]
    observers: tuple[NodeId, ...]


def place(me: NodeId, members: Sequence[NodeId]) -> Overlay | None:
    """Where ``me`` stands among ``members``; None where everybody hears everybody."""
    if len(members) <= MESH_NODES or me not in members:
        return None
    subjects: dict[NodeId, None] = {}
    observers: dict[NodeId, None] = {}
    for ring in range(RINGS):
        order = sorted(members, key=lambda node: _mark(ring, node))
        at = order.index(me)
        subjects[order[(at + 1) % len(order)]] = None
        observers[order[at - 1]] = None
    return Overlay(tuple(subjects), tuple(observers))


def _mark(ring: int, node: NodeId) -> bytes:
    return hashlib.blake2b(f"{ring}/{node}".encode(), digest_size=8).digest()


@dataclass(slots=True)
class Alarms:
    """What observers said, as who counts it keeps it."""

    raised: dict[NodeId, dict[NodeId, float]] = field(default_factory=dict)
    """Per silent node, who misses it and since when we know."""

    def raise_(self, subject: NodeId, observer: NodeId, now: float) -> None:
        self.raised.setdefault(subject, {}).setdefault(observer, now)

    def clear(self, subject: NodeId) -> None:
        self.raised.pop(subject, None)

    def dead(self, now: float, members: int) -> list[NodeId]:
        """Nodes that enough observers miss, in order of their names."""
        self._forget(now)
        quorum = min(QUORUM, max(1, members - 2))
        return sorted(n for n, by in self.raised.items() if len(by) >= quorum)

    def pending(self, now: float) -> bool:
        """Whether somebody is missed by too few yet, and that is news."""
        self._forget(now)
        return any(
            len(by) < QUORUM and now - min(by.values()) < GATHER_SECONDS
            for by in self.raised.values()
        )

    def deadline(self, now: float) -> float:
        """When :meth:`pending` may change without anybody saying anything."""
        times = [min(by.values()) + GATHER_SECONDS for by in self.raised.values() if by]
        return min([time for time in times if time > now], default=float("inf"))

    def _forget(self, now: float) -> None:
        for subject, by in list(self.raised.items()):
            for observer in [o for o, at in by.items() if now - at >= ALARM_SECONDS]:
                del by[observer]
            if not by:
                del self.raised[subject]
