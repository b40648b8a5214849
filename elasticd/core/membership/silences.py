"""When the silence of a peer will have lasted too long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from elasticd.core.context import Context
from elasticd.core.membership.attention import Attention
from elasticd.types import NodeId


@dataclass(slots=True)
class Silences:
    """Of those that a node listens to, and of those that closed their connection."""

    ctx: Context
    attention: Attention
    _look_at: float = -inf
    """Before that no peer can be silent for too long, or closed."""

    def look_soon(self) -> None:
        """Anything may be over now."""
        self._look_at = -inf

    def mind(self, node: NodeId) -> None:
        """Look when this one may be over, at the latest."""
        self._look_at = min(self._look_at, self._soonest(node))

    @property
    def due(self) -> bool:
        return self.ctx.now >= self._look_at

    def over(self) -> Iterator[NodeId]:
        """Who is silent for too long, or closed its connection and did not come back. One at a
        time: what is done about it may change who is left."""
        peers, detector, now = self.attention.roll.peers, self.attention.detector, self.ctx.now
        for node in sorted(self.attention.minded()):
            peer = peers.get(node)
            if peer is None:
                continue
            if peer.down_since is None:
                if now >= detector.silent_at(node, now):
                    yield node
            elif now - peer.down_since >= self.ctx.timing.return_seconds:
                yield node

    def looked(self) -> None:
        """Nobody is over now."""
        self._look_at = min(map(self._soonest, self.attention.minded()), default=inf)

    def ends(self, until: float) -> list[float]:
        """When peers will be dead if nothing more is heard of them, if any may be so before
        ``until``."""
        if self._look_at >= until:
            return []
        return [self._end(node) for node in self.attention.minded()]

    def _soonest(self, node: NodeId) -> float:
        """Before that its silence means nothing, whatever is learned of its pace meanwhile."""
        back = self._back_by(node)
        if back is not None:
            return back
        attention = self.attention
        return max(attention.detector.silent_at_soonest(node), attention.circle.again_at(node))

    def _end(self, node: NodeId) -> float:
        """When a peer will be dead if nothing more is heard of it."""
        back = self._back_by(node)
        if back is not None:
            return back
        attention, now = self.attention, self.ctx.now
        return max(attention.detector.silent_at(node, now), attention.circle.again_at(node))

    def _back_by(self, node: NodeId) -> float | None:
        """When it has to be back, if its connection closed."""
        down_since = self.attention.roll.peers[node].down_since
        return None if down_since is None else down_since + self.ctx.timing.return_seconds
