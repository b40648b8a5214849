"""Connections between daemons: ordered, delayed, closed by crashes, stalled by partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elasticd.core import effects as e
from elasticd.core.frames import Frame, decode_frame, encode_frame
from elasticd.types import NodeId

from .cluster import Cluster

_RECONNECT_SECONDS = (0.02, 0.15)


@dataclass(slots=True)
class Pipe:
    """One direction of a session."""

    last: float = 0.0
    up: bool = False
    up_at: float = 0.0
    held: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """A pair of connections between two incarnations of daemons."""

    number: int
    boots: dict[NodeId, str]
    pipes: dict[NodeId, Pipe]
    """By sender."""


class Network:
    """Tells each host of its peers as shell/peers.py does, and carries their messages."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._sessions: dict[tuple[NodeId, NodeId], Session] = {}
        self._cut: set[tuple[NodeId, NodeId]] = set()
        self._numbers = 0
        self._down_at: dict[tuple[NodeId, NodeId], float] = {}

    def appeared(self, node: NodeId) -> None:
        """A daemon started: it and the others dial each other."""
        for other in self.cluster.hosts:
            if other != node:
                self._dial(node, other)

    def crashed(self, node: NodeId) -> None:
        """The kernel closes a dead daemon's connections."""
        for pair in list(self._sessions):
            if node in pair:
                self._close(pair, "its connection closed")

    def send(self, sender: NodeId, to: NodeId, frame: Frame) -> None:
        session = self._sessions.get(_pair(sender, to))
        if session is None or not session.pipes[sender].up:
            return
        if self.cluster.setup.on_the_wire:
            frame = decode_frame(encode_frame(frame))
        self._carry(session, sender, to, lambda: self._post(to, e.Arrived(sender, frame)))

    def connected(self, a: NodeId, b: NodeId) -> bool:
        return a == b or (_pair(a, b) in self._sessions and _pair(a, b) not in self._cut)

    def cut(self, side: list[NodeId], close: bool) -> None:
        """Separate ``side`` from the rest. ``close``: the connections end, else they stall."""
        for a in self.cluster.hosts:
            for b in self.cluster.hosts:
                if a < b and (a in side) != (b in side):
                    self._cut.add((a, b))
                    if close:
                        self._close((a, b), "its connection failed: timed out")

    def heal(self) -> None:
        """What stalled arrives now; what was closed is dialled again."""
        cut, self._cut = sorted(self._cut), set()
        for pair in cut:
            session = self._sessions.get(pair)
            if session is None:
                self._dial(*pair)
                continue
            for sender, to in (pair, pair[::-1]):
                held, session.pipes[sender].held = session.pipes[sender].held, []
                for action in held:
                    self._carry(session, sender, to, action)

    def flap(self, a: NodeId, b: NodeId) -> None:
        """A connection closes and is made again at once; what was on its way is lost."""
        self._close(_pair(a, b), "its connection failed: reset")
        self._dial(a, b)

    # --- sessions ---------------------------------------------------------------------------------

    def _dial(self, a: NodeId, b: NodeId) -> None:
        delay = self.cluster.between(_RECONNECT_SECONDS)
        self.cluster.after(delay, lambda: self._connect(_pair(a, b)))

    def _connect(self, pair: tuple[NodeId, NodeId]) -> None:
        hosts = [self.cluster.hosts[node] for node in pair]
        if pair in self._sessions or pair in self._cut or any(h.node is None for h in hosts):
            return
        self._numbers += 1
        boots = {host.name: host.boot for host in hosts}
        session = Session(self._numbers, boots, {node: Pipe() for node in pair})
        self._sessions[pair] = session
        for node, other in (pair, pair[::-1]):
            self._announce(session, node, other)

    def _announce(self, session: Session, node: NodeId, other: NodeId) -> None:
        def up() -> None:
            if self._sessions.get(_pair(node, other)) is session:
                session.pipes[node].up = True
                self._post(node, e.PeerUp(other, session.boots[other], f"{other}:1"))

        # A daemon hears of the end of one connection before it hears of the next one.
        wait = max(0.0, self._down_at.get((node, other), 0.0) - self.cluster.now)
        wait += self.cluster.between((0.0, 0.004))
        session.pipes[node].up_at = self.cluster.now + wait
        self.cluster.after(wait, up)

    def _close(self, pair: tuple[NodeId, NodeId], reason: str) -> None:
        session = self._sessions.pop(pair, None)
        if session is None:
            return
        for node, other in (pair, pair[::-1]):
            if session.pipes[node].up:
                self._tell_closed(session, node, other, reason)

    def _tell_closed(self, session: Session, node: NodeId, other: NodeId, reason: str) -> None:
        boot = session.boots[node]
        delay = max(session.pipes[other].last, self.cluster.now) - self.cluster.now
        delay += self.cluster.between(self.cluster.setup.message_seconds)
        self._down_at[(node, other)] = self.cluster.now + delay

        def down() -> None:
            if self.cluster.hosts[node].boot == boot:
                self._post(node, e.PeerDown(other, session.boots[other], reason))

        self.cluster.after(delay, down)

    def _carry(
        self, session: Session, sender: NodeId, to: NodeId, action: Callable[[], None]
    ) -> None:
        """FIFO: nothing overtakes, neither on the way nor in the receiver's socket buffer."""
        pipe = session.pipes[sender]
        if _pair(sender, to) in self._cut:
            pipe.held.append(action)
            return
        delay = self.cluster.between(self.cluster.setup.message_seconds)
        # What comes before the receiver has its own connection waits for that.
        pipe.last = max(pipe.last, self.cluster.now + delay, session.pipes[to].up_at) + 1e-7
        boot = session.boots[to]

        def arrive() -> None:
            # Bytes that the kernel had taken arrive even if the sender is gone.
            if self.cluster.hosts[to].boot == boot:
                action()

        self.cluster.after(pipe.last - self.cluster.now, arrive)

    def _post(self, node: NodeId, event: e.Inward) -> None:
        self.cluster.hosts[node].post(event)


def _pair(a: NodeId, b: NodeId) -> tuple[NodeId, NodeId]:
    return (a, b) if a < b else (b, a)
