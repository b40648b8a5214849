"""When sessions and links want to be looked at next, so that nothing else is looked at."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from elasticd.core.membership.links import Links
from elasticd.core.membership.sessions import Session
from elasticd.core.membership.views import Membership
from elasticd.types import NodeId


@dataclass(slots=True)
class Alarms:
    """Of sessions: those that changed their mind since are passed over."""

    sessions: Mapping[NodeId, Session]
    stirred: dict[NodeId, None] = field(default_factory=dict)
    """Peers whose sessions were used in this step."""
    _heap: list[tuple[float, NodeId]] = field(default_factory=list)
    _set: dict[NodeId, float] = field(default_factory=dict)

    def stir(self, node: NodeId) -> None:
        """Its session was used."""
        self.stirred[node] = None

    def set(self) -> None:
        """After a step: when those that were used want to be looked at."""
        for node in self.stirred:
            at = self.sessions[node].deadline()
            if at < inf and at != self._set.get(node):
                self._set[node] = at
                heappush(self._heap, (at, node))
        self.stirred.clear()

    def next(self) -> float:
        """When the first one is due; inf: none is."""
        while self._heap:
            at, node = self._heap[0]
            if at == self.sessions[node].deadline():
                return at
            self._drop()
        return inf

    def due(self, now: float) -> list[NodeId]:
        """Peers whose sessions are due, in the order of the sessions."""
        found: set[NodeId] = set()
        while self.next() <= now:
            found.add(self._drop())
        return [node for node in self.sessions if node in found] if found else []

    def _drop(self) -> NodeId:
        at, node = heappop(self._heap)
        if self._set.get(node) == at:
            del self._set[node]
        return node


@dataclass(slots=True)
class Vigil:
    """Of links to peers that it matters to reach."""

    links: Links
    sessions: Mapping[NodeId, Session]
    views: Membership
    due: float = -inf
    """Before that no link needs a look; not later than it would, and mostly just then."""
    _changes: int = -1
    """Of the node's views, when that was found."""
    _stepped_at: float = 0.0
    _heeded: frozenset[NodeId] | None = None
    """The peers that the node listened to after the last step; None: all."""

    def hurry(self) -> None:
        """Some link may need a look after the next step."""
        self.due = -inf

    def refresh(self) -> float:
        """When a link needs a look, as things were after the last step."""
        wanted = (node for node in self.sessions if self.wanted(node))
        self.due = min((self.links.deadline(n, self._stepped_at) for n in wanted), default=inf)
        return self.due

    def wanted(self, node: NodeId) -> bool:
        """Whether it matters if a peer can be reached."""
        liveness, view = self.views.liveness, self.views.view
        if liveness.attention.heeded is not None:
            link = self.links.of(node)
            return node in liveness.peers and (link.awaited_since < inf or not link.up)
        return node in liveness.peers or (view is not None and node in view.members)

    def third(self, node: NodeId) -> Collection[NodeId]:
        """Who may hear a peer besides us."""
        liveness = self.views.liveness
        if liveness.attention.heeded is None:
            return self.links.links
        watchers = liveness.circle.watchers(node) & self.links.links.keys()
        return watchers or self.links.links

    def stepped(self, now: float, stirred: Collection[NodeId]) -> None:
        """A step is done, in which these sessions were used."""
        changes = self.views.liveness.attention.changes
        if changes != self._changes:
            self._changes = changes
            self.hurry()
        self._stepped_at = now
        self._await_answers(now, stirred)

    def _await_answers(self, now: float, stirred: Collection[NodeId]) -> None:
        """Over a link to a peer that we do not listen to nothing comes but what it owes us."""
        heeded, before = self.views.liveness.attention.heeded, self._heeded
        self._heeded = heeded
        if heeded is not before:
            every = frozenset(self.sessions)
            old, new = (every if some is None else some for some in (before, heeded))
            for node in new - old:
                self.links.await_from(node, now)
            for node in (old - new) & every:
                self.links.await_from(node, self.sessions[node].waits_since)
        if heeded is None:
            return
        for node in stirred:
            if node not in heeded:
                self._await(node, self.sessions[node].waits_since)

    def _await(self, node: NodeId, since: float) -> None:
        if self.links.await_from(node, since):
            self.hurry()
