"""The peers of one node: who is held for alive, which connections are open, who is gone."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from elasticd.types import NodeId, Tag


@dataclass(slots=True)
class Peer:
    boot: str
    address: str
    session: int
    """Rises when messages between it and us were given up (core/membership/sessions.py)."""
    epoch: Tag | None = None
    """The view that it follows; None until it has said so."""
    primary: bool = False
    """That view may train."""
    down_since: float | None = None
    down_reason: str = ""
    accused_at: float = -inf
    """When another node had a second witness against it, perhaps before we heard of the first."""
    accused_of: str = ""

    @property
    def run(self) -> tuple[str, int]:
        """Incarnation and session: while they are the same, nothing that was said is lost."""
        return self.boot, self.session


@dataclass(slots=True)
class Roll:
    """Who is there, from what this node has heard."""

    me: NodeId
    peers: dict[NodeId, Peer] = field(default_factory=dict)
    """Those that are not known to be dead."""
    links: dict[NodeId, tuple[str, str, int]] = field(default_factory=dict)
    """Boot, address and session of every open connection, also to peers that fell silent."""
    departed: set[NodeId] = field(default_factory=set)
    """Peers that said they were leaving and have not taken it back."""
    buried: dict[NodeId, str] = field(default_factory=dict)
    """The run of each peer that was held for dead."""
    evidence: dict[NodeId, str] = field(default_factory=dict)
    """What third nodes say of a peer that is not heard."""
    _living: tuple[NodeId, ...] | None = None
    _suspects: list[NodeId] | None = None

    def changed(self) -> None:
        """Peers came or went."""
        self._living = self._suspects = None

    def doubted(self) -> None:
        """A peer's connection closed, or is open again."""
        self._suspects = None

    def unlink(self, node: NodeId, boot: str) -> None:
        """The connection to this run of a peer has closed."""
        link = self.links.get(node)
        if link is not None and link[0] == boot:
            del self.links[node]

    def silenced(self, node: NodeId) -> bool:
        """Whether a peer is connected and was held for dead though it never said that it goes."""
        return node in self.links and node not in self.peers and node not in self.departed

    def suspects(self) -> list[NodeId]:
        if self._suspects is None:
            downs = (n for n, peer in self.peers.items() if peer.down_since is not None)
            self._suspects = sorted(downs)
        return self._suspects

    def living(self) -> tuple[NodeId, ...]:
        """This node and every peer that is not known to be dead, suspects included, by name."""
        if self._living is None:
            self._living = tuple(sorted([self.me, *self.peers]))
        return self._living

    def state_of(self, node: NodeId) -> str:
        if node == self.me:
            return "alive"
        peer = self.peers.get(node)
        if peer is None:
            return "dead"
        return "alive" if peer.down_since is None else "suspect"
