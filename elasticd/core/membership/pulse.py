"""The heartbeats that one node sends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticd.core.context import Context
from elasticd.core.membership.attention import Attention
from elasticd.core.words.views import Heartbeat
from elasticd.types import NO_TAG, NodeId

_SELDOM = 4
"""Every so many heartbeats one goes to the dead, too."""


@dataclass(slots=True)
class Pulse:
    ctx: Context
    attention: Attention
    next_at: float = 0.0
    _beats: int = 0

    def due(self) -> bool:
        """Whether a heartbeat is due; if so it counts as sent."""
        if self.ctx.now < self.next_at:
            return False
        self.next_at = self.ctx.now + self.ctx.timing.heartbeat_seconds
        return True

    def hurry(self) -> None:
        """The next heartbeat is due."""
        self.next_at = self.ctx.now

    def beat(self, beat: Heartbeat, leading: bool) -> None:
        """To all who may hear it; to those that we hold for dead seldom, so that both notice when
        they are not. It has just been found out whom to listen to."""
        self._beats += 1
        roll, heeded = self.attention.roll, self.attention.heeded
        if heeded is None:
            for node, peer in roll.peers.items():
                if peer.down_since is None:
                    self.ctx.send(node, beat)
        else:
            self._beat_around(beat, heeded)
        if self._beats % _SELDOM == 0 and (heeded is None or leading):
            for node in sorted(roll.links.keys() - roll.peers.keys() - roll.departed):
                self.ctx.send(node, beat)

    def _beat_around(self, beat: Heartbeat, heeded: frozenset[NodeId]) -> None:
        """To those that we listen to and that listen to us; and to the leader of a newer view, to
        which nobody else may say that we follow another."""
        peers = self.attention.roll.peers
        epochs = (peers[node].epoch or NO_TAG for node in self.attention.odd)
        leaders = {epoch.leader for epoch in epochs if epoch > beat.epoch}
        listeners = {*self.attention.circle.listening(self.ctx.now), *leaders}
        for node in sorted(heeded | listeners):
            peer = peers.get(node)
            if peer is not None and peer.down_since is None:
                self.ctx.send(node, beat if node in heeded else replace(beat, asks=False))
