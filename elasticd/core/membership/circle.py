"""Whom one node listens to, who listens to it, and how the many learn what the few have seen.

Up to overlay.FULL_MESH_NODES members everyone hears everyone and judges alone. In a larger view a
node hears its neighbours in the overlay. Who finds one silent charges it before all members, and it
is dead once several have: one watcher that is deaf itself kills nobody. A node whose neighbours
fall silent together is on one side of a cut, most of whose other side nobody on this one watches:
it listens to everyone again until there is a new view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from math import inf

from elasticd.core.membership.overlay import FULL_MESH_NODES, overlay
from elasticd.types import NodeId

CONFIRM = 3
"""So many watchers make a silent node dead, or all that it has left."""
DOUBTED = 2
"""A watcher that so many others charge is not waited for."""
CHARGE_SECONDS = 2.5
"""A charge counts for so long."""
REPEAT_SECONDS = 1.0
"""Whoever still finds the node silent charges it again."""
STABLE_SECONDS = 0.5
"""No view is proposed for so long after a first charge that is not decided: those that fail
together go together."""
WIDE_SECONDS = 10.0
"""Who listens to everyone does so for so long, unless a view is formed before."""
LISTENER_SECONDS = 1.0
"""Who asked for heartbeats gets them for so long."""


@dataclass(slots=True)
class Charges:
    """Against one node: when, by whom, and how long it was silent then."""

    first_at: float
    by: dict[NodeId, tuple[float, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Circle:
    """One node's place in the overlay of its view."""

    me: NodeId
    near: frozenset[NodeId] | None = None
    """The members that it listens to; None: everybody."""
    alive: tuple[NodeId, ...] = ()
    """Of whom the overlay is made: members that are not known to be dead."""
    widened_at: float = inf
    """When too many were silent at once: since then it listens to everyone, and judges alone."""
    listeners: dict[NodeId, float] = field(default_factory=dict)
    """Who asked for heartbeats, and when."""
    charges: dict[NodeId, Charges] = field(default_factory=dict)

    def form(self, members: tuple[NodeId, ...]) -> None:
        """Another view is ours; with () none is."""
        self.widened_at = inf
        self.charges.clear()
        self.settle(members, members)

    def settle(self, members: tuple[NodeId, ...], alive: tuple[NodeId, ...]) -> None:
        """Of the view's ``members`` these are held for alive now."""
        self.alive = alive
        sparse = len(members) > FULL_MESH_NODES and not self.wide
        self.near = overlay(alive).neighbours(self.me) if sparse else None
        if not sparse:
            self.listeners.clear()

    def widen(self, now: float) -> None:
        """Too many are silent at once."""
        self.widened_at = now

    @property
    def wide(self) -> bool:
        return self.widened_at < inf

    def narrow(self, now: float) -> bool:
        """Nothing came of it: the overlay will do again. True if that is news."""
        over = now - self.widened_at >= WIDE_SECONDS
        if over:
            self.widened_at = inf
        return over

    @property
    def sparse(self) -> bool:
        """Whether the view is one in which not everyone hears everyone."""
        return self.near is not None or self.wide

    def watchers(self, node: NodeId) -> frozenset[NodeId]:
        return overlay(self.alive).neighbours(node)

    # --- heartbeats -------------------------------------------------------------------------------

    def asked(self, node: NodeId, asks: bool, now: float) -> None:
        """A heartbeat came from a node, which wants ours or does not."""
        if self.near is None:
            return
        if asks:
            self.listeners[node] = now
        else:
            self.listeners.pop(node, None)

    def listening(self, now: float) -> Iterator[NodeId]:
        """Who wants our heartbeats still."""
        for node, at in list(self.listeners.items()):
            if now - at < LISTENER_SECONDS:
                yield node
            else:
                del self.listeners[node]

    # --- charges ----------------------------------------------------------------------------------

    def charge(self, node: NodeId, by: NodeId, now: float, silent_seconds: float) -> None:
        charges = self.charges.get(node)
        if charges is None or not any(now - at < CHARGE_SECONDS for at, _ in charges.by.values()):
            charges = self.charges[node] = Charges(now)
        charges.by[by] = (now, silent_seconds)

    def again_at(self, node: NodeId) -> float:
        """Not before that this node charges another again."""
        charges = self.charges.get(node)
        own = charges.by.get(self.me) if charges is not None else None
        return own[0] + REPEAT_SECONDS if own is not None else -inf

    def acquit(self, node: NodeId) -> None:
        """We hear it again."""
        charges = self.charges.get(node)
        if charges is not None:
            charges.by.pop(self.me, None)

    def drop(self, node: NodeId) -> None:
        self.charges.pop(node, None)

    def verdict(self, node: NodeId, now: float) -> tuple[str, float] | None:
        """Why a node is dead, and since when it was silent; None: it is not known to be."""
        fresh = self._fresh(node, now)
        watchers = self.watchers(node)
        able = sum(len(self._fresh(watcher, now)) < DOUBTED for watcher in watchers)
        if len(fresh) < max(1, min(CONFIRM, able)):
            return None
        at, seconds = min(fresh.values(), key=lambda told: told[0] - told[1])
        named = sorted(fresh)[:CONFIRM]
        return f"silent for {seconds:.1f} s, say {', '.join(named)}", at - seconds

    def _fresh(self, node: NodeId, now: float) -> dict[NodeId, tuple[float, float]]:
        charges = self.charges.get(node)
        if charges is None:
            return {}
        return {by: told for by, told in charges.by.items() if now - told[0] < CHARGE_SECONDS}

    def undecided(self, now: float) -> bool:
        """Whether somebody was charged just now, and others may follow."""
        return any(
            now - charges.first_at < STABLE_SECONDS and charges.by
            for charges in self.charges.values()
        )

    def cut(self, members: Collection[NodeId], now: float) -> bool:
        """Whether so many are silent that it must be a cut: half of those that this node watches,
        or a quarter of all."""
        if self.near is None:
            return False
        charged = {node for node in self.charges if self._fresh(node, now)}
        mine = sum(self.me in self.charges[node].by for node in self.near & charged)
        gone = len(members) - len(self.alive) + len(charged)
        return 2 * mine >= len(self.near) or 4 * gone >= len(members)
