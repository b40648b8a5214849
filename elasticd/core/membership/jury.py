"""A silent node of a large view is judged by several: who finds it silent charges it before all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticd.core.context import Context
from elasticd.core.membership.attention import Attention
from elasticd.core.words.views import Missing
from elasticd.types import NodeId


@dataclass(slots=True)
class Jury:
    ctx: Context
    attention: Attention
    bury: Callable[[NodeId, str, float], None]
    """Told of who is dead, why, and since when it was silent."""
    listen: Callable[[], None]
    """Find out anew whom to listen to, and so who may judge."""

    def accuse(self, node: NodeId, seconds: float) -> None:
        """Tell all that a node is silent, unless that was done just now."""
        circle, roll, now = self.attention.circle, self.attention.roll, self.ctx.now
        if now < circle.again_at(node):
            return
        circle.charge(node, self.ctx.me, now, seconds)
        missing = Missing(node, roll.peers[node].boot, seconds)
        for peer in roll.living():
            if peer not in (self.ctx.me, node):
                self.ctx.send(peer, missing)
        self._weigh()

    def on_missing(self, sender: NodeId, missing: Missing) -> None:
        circle, peers = self.attention.circle, self.attention.roll.peers
        peer = peers.get(missing.node)
        known = peer is not None and peer.boot == missing.boot and sender in peers
        if known and circle.sparse:
            circle.charge(missing.node, sender, self.ctx.now, missing.silent_seconds)
            self._weigh()

    def _weigh(self) -> None:
        """Bury who was charged by enough; if it is as in a cut, hear everyone ourselves."""
        circle, peers, moved = self.attention.circle, self.attention.roll.peers, True
        while moved:
            moved = False
            for node in sorted(circle.charges.keys() & peers.keys()):
                verdict = circle.verdict(node, self.ctx.now)
                if verdict is not None:
                    self.bury(node, *verdict)
                    self.listen()
                    moved = True
        if self.attention.cut():
            self.listen()
