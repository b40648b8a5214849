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

    def follow(self, epoch: Tag | None, primary: bool) -> None:
        """The view that it follows, as far as we know."""
        self.epoch, self.primary = epoch, primary

    def forget_view(self) -> None:
        """It is to say again which view it follows."""
        self.epoch = None

    def returned(self, address: str) -> None:
        """The same run is there on another connection."""
        self.address, self.down_since, self.down_reason = address, None, ""

    def lost(self, now: float, reason: str) -> None:
        """Its connection has closed."""
        self.down_since, self.down_reason = now, reason

    def accuse(self, now: float, of: str) -> None:
        """Another node had a second witness against it."""
        self.accused_at, self.accused_of = now, of


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

    def link(self, node: NodeId, boot: str, address: str, session: int) -> None:
        """There is a connection to this run of a peer."""
        self.links[node] = (boot, address, session)

    def meet(self, node: NodeId) -> str | None:
        """Who is connected is a peer from now on. Returns the run that was held for dead before."""
        self.peers[node] = Peer(*self.links[node])
        return self.buried.pop(node, None)

    def bury(self, node: NodeId) -> str:
        """A peer is held for dead. Returns what third nodes have said of it."""
        self.buried[node] = self.peers[node].boot
        return self.evidence.pop(node, "")

    def drop(self, node: NodeId) -> None:
        """Not a peer any more."""
        self.peers.pop(node, None)

    def drop_all(self) -> None:
        """We go."""
        self.peers.clear()

    def testify(self, node: NodeId, evidence: str) -> None:
        """What third nodes say of a peer that is not heard."""
        self.evidence[node] = evidence

    def heard(self, node: NodeId) -> None:
        """A peer speaks, whatever third nodes have said."""
        self.evidence.pop(node, None)

    def depart(self, node: NodeId) -> None:
        """It says that it goes."""
        self.departed.add(node)

    def stay(self, node: NodeId) -> None:
        """It has taken that back."""
        self.departed.discard(node)

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
