"""Which peers are heard directly, and through whom the others are reached.

A link is a direct connection with a peer. When nothing comes over it, third nodes are asked
whether they hear the peer. If one does, the link is dead and not the node: frames go through that
node, both ways if need be, until the link has proved itself again. Pure: Endpoint performs what is
decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from elasticd.types import NodeId

HELPERS = 3
"""So many third nodes are asked at once."""
ASK_SECONDS = 0.25
FIRST_ASK_SECONDS = 0.1
"""After a closed connection: the others may not have seen yet that the node is gone."""
SELDOM_ASK_SECONDS = 2.0
"""Between questions about a node that the view has and we have given up."""
RELAY_SECONDS = 1.0
"""A relay is alive for so long after the last frame through it."""
PROOF_SECONDS = 1.0
"""A link that returned is used alone after it has been heard steadily for so long, doubling with
each loss up to LONGEST_PROOF_SECONDS."""
LONGEST_PROOF_SECONDS = 30.0


@dataclass(slots=True)
class Link:
    """What is known of the way to one peer.

    Attributes:
        up: there is a connection.
        awaited_since: since when something is to come over it; infinite: nothing is.
        heard_at: when a frame last came over it.
        steady_since: since when frames come over it without a gap.
        via: the node that carries our frames to the peer, and its to us.
        carried_at: when the last one came that way.
        deaf_at: when the peer last said that it doesn't hear us directly.
        lost_at: when it was proved that the link is dead and the peer lives; None: it is not.
        losses: how often that was so.
        denials: third nodes that don't hear the peer either, and when they said so.
    """

    up: bool = False
    awaited_since: float = -inf
    heard_at: float = -inf
    steady_since: float = inf
    down_reason: str = ""
    via: NodeId | None = None
    carried_at: float = -inf
    deaf_at: float = -inf
    ask_at: float = inf
    lost_at: float | None = None
    losses: int = 0
    denials: dict[NodeId, float] = field(default_factory=dict)


@dataclass(slots=True)
class Links:
    """All links of one node. ``patience_seconds``: a longer gap than this makes a link doubtful."""

    patience_seconds: float
    links: dict[NodeId, Link] = field(default_factory=dict)
    _asked: int = 0

    def of(self, node: NodeId) -> Link:
        link = self.links.get(node)
        if link is None:
            link = self.links[node] = Link()
        return link

    def drop(self, node: NodeId) -> None:
        """Another run of it is there: nothing is known of the way to that."""
        self.links.pop(node, None)

    # --- what is heard ----------------------------------------------------------------------------

    def up(self, node: NodeId, now: float) -> None:
        link = self.of(node)
        link.up, link.ask_at = True, inf
        link.heard_at = link.steady_since = now

    def down(self, node: NodeId, now: float, reason: str) -> None:
        link = self.of(node)
        link.up, link.down_reason, link.steady_since = False, reason, inf
        link.ask_at = now + FIRST_ASK_SECONDS

    def heard(self, node: NodeId, now: float) -> None:
        link = self.of(node)
        if now - link.heard_at >= self.patience_seconds:
            link.steady_since = now
        link.heard_at = now

    def paused(self, now: float, seconds: float) -> None:
        """We did not run: that counts as nobody's silence."""
        for link in self.links.values():
            link.heard_at = min(now, link.heard_at + seconds)

    # --- what follows -----------------------------------------------------------------------------

    def doubtful(self, node: NodeId, now: float) -> bool:
        """Nothing comes over the link now."""
        return self._doubtful(self.of(node), now)

    def _doubtful(self, link: Link, now: float) -> bool:
        if not link.up:
            return True
        # Of what is heard all the time the first is enough.
        return now >= self._doubtful_at(link)

    def _doubtful_at(self, link: Link) -> float:
        return max(link.heard_at, link.awaited_since) + self.patience_seconds

    def deaf(self, node: NodeId, now: float) -> bool:
        """We don't hear it directly, or not for long enough again after we did not."""
        link = self.of(node)
        if self.doubtful(node, now):
            return True
        return link.lost_at is not None and now < self._proved_at(link)

    def _proved_at(self, link: Link) -> float:
        # A time, not a span: of a deadline that has come the difference may still be too small.
        seconds = min(PROOF_SECONDS * 2.0 ** max(0, link.losses - 1), LONGEST_PROOF_SECONDS)
        return link.steady_since + seconds

    def relay(self, node: NodeId, now: float) -> NodeId | None:
        """Who else shall carry a frame to it now; None: the link is enough, or all there is."""
        link = self.of(node)
        if link.via is None or not (self.deaf(node, now) or now - link.deaf_at < RELAY_SECONDS):
            return None
        return link.via

    def relayed(self, node: NodeId, now: float) -> bool:
        """Frames of it come through a third node."""
        return now < self.of(node).carried_at + RELAY_SECONDS

    def age_seconds(self, node: NodeId, now: float) -> float | None:
        """How long ago it was heard directly; None if not lately."""
        if node not in self.links or self.doubtful(node, now):
            return None
        return now - self.links[node].heard_at

    def knows(self, node: NodeId, now: float) -> bool:
        """Whether a silence of its would tell something."""
        link = self.of(node)
        return link.awaited_since < inf or now - link.heard_at < self.patience_seconds

    def helpers(self, node: NodeId, now: float, among: Iterable[NodeId]) -> list[NodeId]:
        """Whom to ask about it, others each time."""
        heard = sorted(n for n in among if n != node and not self.doubtful(n, now))
        self._asked += HELPERS
        turn = self._asked % len(heard) if heard else 0
        return (heard[turn:] + heard[:turn])[:HELPERS]

    def evidence(self, node: NodeId, now: float) -> str:
        """What third nodes say of its silence, for the event; empty if nobody was there to ask."""
        said = sorted(n for n, at in self.of(node).denials.items() if now - at < 2 * RELAY_SECONDS)
        if not said:
            return ""
        verb = "does" if len(said) == 1 else "do"
        return f"{' and '.join(said[:HELPERS])} {verb} not hear it either"

    def carried(self, node: NodeId, via: NodeId, deaf: bool, now: float) -> None:
        """A frame of it came through ``via``; ``deaf``: because it doesn't hear us directly."""
        link = self.of(node)
        link.carried_at = now
        if deaf:
            link.deaf_at = now
        if link.via is None:
            link.via = via

    def vouched(self, node: NodeId, helper: NodeId, now: float) -> None:
        """A third node hears it, and may carry our frames to it."""
        link = self.of(node)
        link.denials.pop(helper, None)
        if link.via is None or not self.relayed(node, now):
            link.via = helper

    def denied(self, node: NodeId, helper: NodeId, now: float) -> None:
        """A third node doesn't hear it either."""
        self.of(node).denials[helper] = now

    def lost(self, node: NodeId, now: float) -> str:
        """It is proved that the link is dead and the peer lives. Returns the sign of it."""
        link = self.of(node)
        link.lost_at = now
        link.losses += 1
        return f"{now - link.heard_at:.1f} s of silence" if link.up else link.down_reason

    def proved(self, node: NodeId) -> None:
        """A link that was lost is as good as any."""
        link = self.of(node)
        link.lost_at = link.via = None

    def asked(self, node: NodeId, now: float, wait_seconds: float) -> None:
        """Third nodes are asked about it, and again after so long."""
        self.of(node).ask_at = now + wait_seconds

    def await_from(self, node: NodeId, since: float) -> bool:
        """Something is to come over the link since then; infinite: nothing is. Whether that is
        news."""
        link = self.of(node)
        news, link.awaited_since = link.awaited_since != since, since
        return news

    def due(self, node: NodeId, now: float) -> bool:
        """Whether it is time to ask about a doubtful link."""
        link = self.of(node)
        if not self.doubtful(node, now):
            return False
        if link.via is not None and self.doubtful(link.via, now):
            link.via = None
        if self.relayed(node, now) and link.via is not None:
            return False
        return not link.ask_at < inf or now >= link.ask_at

    def deadline(self, node: NodeId, now: float) -> float:
        """When to look at a link again that nothing is heard of meanwhile."""
        link = self.of(node)
        if not self._doubtful(link, now):
            if link.lost_at is None:
                return self._doubtful_at(link)
            # It may have proved itself while nobody cared: that is to be told, however late.
            return min(self._doubtful_at(link), self._proved_at(link))
        if link.via is not None and self.relayed(node, now):
            return link.carried_at + RELAY_SECONDS
        return link.ask_at if link.ask_at < inf else now
