"""To whom one node listens: to everyone, or in a large view to those around it and those in doubt.

What it depends on changes often, and several times at one instant, so that it is found anew only
when it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.membership.circle import Circle
from elasticd.core.membership.detector import Detector
from elasticd.core.membership.roll import Roll
from elasticd.types import NodeId


@dataclass(slots=True)
class Attention:
    """Of one node, to its peers."""

    ctx: Context
    roll: Roll
    circle: Circle
    detector: Detector
    heeded: frozenset[NodeId] | None = None
    """The peers that this node listens to; None: all."""
    odd: set[NodeId] = field(default_factory=set)
    """Peers that do not follow our view, for all that we know."""
    pressed: set[NodeId] = field(default_factory=set)
    """Members that left a proposed view unanswered."""
    changes: int = 0
    """Rises with whatever changes about whom this node listens to."""
    news: int = 0
    """Rises with whatever changes of who lives or of which view each follows."""
    _members: tuple[NodeId, ...] = ()
    """Of our view."""
    _stale: bool = False
    """Whom to listen to is to be found anew; if also ``_unsettled``, who is in the overlay."""
    _unsettled: bool = False

    def told(self) -> None:
        """Something changed of who lives or of which view each follows."""
        self.news += 1
        self._stale = True

    def regrouped(self) -> None:
        """Peers came or went, or the view did."""
        self.told()
        self.changes += 1
        self.roll.changed()
        self._unsettled = True

    def note(self, node: NodeId, odd: bool) -> None:
        """Whether a peer follows another view than ours, as far as we know."""
        (self.odd.add if odd else self.odd.discard)(node)

    def settle(self, odd: set[NodeId]) -> None:
        """A view is ours now, which all follow but these."""
        self.odd = odd

    def press(self, node: NodeId) -> None:
        """A member has left a proposed view unanswered."""
        self.pressed.add(node)

    def follow(self, members: tuple[NodeId, ...]) -> None:
        """Another view is ours, which nobody has left unanswered."""
        self.form(members)
        self.pressed.clear()

    def form(self, members: tuple[NodeId, ...]) -> None:
        """Another view is ours; with () none is."""
        self._members = members
        self.circle.form(members)

    def drop(self, node: NodeId) -> None:
        """Not a peer any more."""
        self.odd.discard(node)
        self.pressed.discard(node)
        self.circle.drop(node)

    def turn(self) -> bool:
        """Find out whom to listen to. True if they are others than before."""
        if not self._stale:
            return False
        self._stale = False
        if self._unsettled:
            self._unsettled = False
            me, peers = self.ctx.me, self.roll.peers
            alive = (node for node in self._members if node == me or node in peers)
            self.circle.settle(self._members, tuple(alive))
        before, self.heeded = self.heeded, self._wanted()
        if self.heeded is before:
            return False
        self.changes += 1
        if before is not None:
            after = self.roll.peers.keys() if self.heeded is None else self.heeded
            for node in after - before:
                self.detector.meet(node, self.ctx.now)
        return True

    def _wanted(self) -> frozenset[NodeId] | None:
        """What is heeded already where that need not change."""
        near = self.circle.near
        if near is None:
            return None
        wanted = self.roll.peers.keys() & (near | self.odd | self.pressed | self.ctx.reach.deaf)
        heeded = self.heeded
        return frozenset(wanted) if heeded is None or wanted != heeded else heeded

    def minded(self) -> Collection[NodeId]:
        """The peers that may die by what this node sees itself."""
        if self.heeded is None:
            return self.roll.peers
        return self.heeded.union(self.roll.suspects())

    def alone(self, node: NodeId) -> bool:
        """Whether this node judges a peer's silence by itself, without others that watch it."""
        return self.heeded is None or node in self.pressed or node not in self._members

    def close(self, nodes: Sequence[NodeId]) -> Sequence[NodeId]:
        """Those of ``nodes`` that pass news on to the rest."""
        if self.heeded is None:
            return nodes
        return [node for node in nodes if node == self.ctx.me or node in self.heeded]

    def cut(self) -> bool:
        """Whether so many are silent at once that it must be a cut. Then everyone is listened
        to."""
        if not self.circle.cut(self._members, self.ctx.now):
            return False
        self.ctx.log("info", "many are silent at once: everyone is listened to")
        self.circle.widen(self.ctx.now)
        self.regrouped()
        return True

    def narrow(self) -> bool:
        """Whether nothing came of listening to everyone: the overlay will do again."""
        over = self.circle.narrow(self.ctx.now)
        if over:
            self.regrouped()
        return over
