"""The view that one node follows, and which view each of its peers does."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.membership.roll import Roll
from elasticd.core.words.records import View
from elasticd.types import NO_TAG, NodeId, Tag


@dataclass(slots=True)
class Following:
    roll: Roll
    view: View | None = None
    met: dict[NodeId, tuple[str, int]] = field(default_factory=dict)
    """Incarnation and session of each peer when the present view was formed."""
    reborn: tuple[NodeId, ...] = ()
    """Members whose daemon was started again since the view before."""
    missed: tuple[NodeId, ...] = ()
    """Members to or from which messages were given up since the view before, or that gave it up."""

    @property
    def epoch(self) -> Tag:
        return self.view.epoch if self.view is not None else NO_TAG

    @property
    def leading(self) -> bool:
        return self.view is not None and self.view.leader == self.roll.me

    def follow(self, view: View | None) -> Tag:
        """That view is ours from now on; None: none is. Returns the epoch of the one before."""
        old, self.view = self.epoch, view
        return old

    def forget(self) -> None:
        """We go: nobody is met."""
        self.met = {}

    def compare(self, view: View, old: Tag) -> None:
        """Who is not as it was when the view before, of epoch ``old``, was formed."""
        before, peers = self.met, self.roll.peers
        self.reborn = tuple(
            node for node in view.members
            if node in before and node in peers and before[node][0] != peers[node].boot
        )  # fmt: skip
        self.missed = tuple(
            node for node, peer in sorted(peers.items())
            if before.get(node) != peer.run or peer.epoch != old
        )  # fmt: skip
        self.met = {node: peer.run for node, peer in peers.items()}

    def trust(self, view: View) -> None:
        """Who is not heard from follows the view that it has promised, until it says otherwise."""
        for node in view.members:
            if node in self.roll.peers:
                self.roll.peers[node].follow(view.epoch, view.primary)

    def odd(self) -> set[NodeId]:
        """Peers that do not follow our view, for all that we know."""
        return {node for node, peer in self.roll.peers.items() if peer.epoch != self.epoch}

    def epoch_of(self, node: NodeId) -> Tag:
        return self.epoch if node == self.roll.me else self.roll.peers[node].epoch or NO_TAG

    def trains(self, node: NodeId) -> bool:
        """Whether its view may train."""
        if node == self.roll.me:
            return self.view is not None and self.view.primary
        return self.roll.peers[node].primary
