"""Connections between daemons: ordered, delayed, closed by crashes, stalled by partitions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.core.words import effects as e
from elasticd.core.words.frames import Frame, decode_frame, encode_frame
from elasticd.types import NodeId

from .cluster import Cluster, Mishap

if TYPE_CHECKING:
    from .host import Host

_RECONNECT_SECONDS = (0.02, 0.15)
Way = tuple[NodeId, NodeId]
"""(sender, receiver)."""


@dataclass(slots=True)
class Pipe:
    """One direction of a session."""

    chance: random.Random
    last: float = 0.0
    up: bool = False
    up_at: float = 0.0
    held: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class SimulatedSession:
    """A pair of connections between two incarnations of daemons."""

    number: int
    boots: dict[NodeId, str]
    pipes: dict[NodeId, Pipe]
    """By sender."""


class Network:
    """Tells each host of its peers as shell/network/peers.py does, and carries their messages."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.messages = 0
        self.mishaps: list[Mishap] = []
        """What befell single messages."""
        self.rough = False
        """Whether messages meet with mishaps now."""
        self._sessions: dict[Way, SimulatedSession] = {}
        self._cut: Counter[Way] = Counter()
        """How many cuts each way is under."""
        self._slow: dict[Way, float] = {}
        """Clogged ways: seconds that each message takes at most."""
        self._numbers = 0
        self._down_at: dict[Way, float] = {}
        self._sent: Counter[Way] = Counter()
        given = cluster.setup.mishaps
        self._given = None if given is None else {(m.sender, m.to, m.number): m for m in given}

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
        self.messages += 1
        hosts, mixture = self.cluster.hosts, self.cluster.mixture
        if mixture.mixed:
            frame = mixture.passed(hosts[sender], hosts[to], frame)
        elif self.cluster.setup.on_the_wire:
            frame = decode_frame(encode_frame(frame))
        event = e.Arrived(sender, frame)

        def arrive() -> None:
            self._post(to, event)

        mishap = self._mishap(sender, to)
        match mishap.kind if mishap is not None else "":
            case "":
                self._carry(session, sender, to, arrive)
            case "delayed":
                assert mishap is not None
                self._carry(session, sender, to, arrive, mishap.seconds)
            case "duplicated":
                assert mishap is not None
                self._carry(session, sender, to, arrive)
                self._overtaken(session, to, arrive, mishap.seconds)
            case "reordered":
                assert mishap is not None
                self._overtaken(session, to, arrive, mishap.seconds)

    def connected(self, a: NodeId, b: NodeId) -> bool:
        """Whether bulk data flows between them."""
        whole = _pair(a, b) in self._sessions and not self._cut[a, b] and not self._cut[b, a]
        return a == b or whole

    def fetches(self, asker: Host, asked: Host) -> bool:
        """Whether bulk data comes from there, as by shell/network/neighbours.py: through the third
        node that the daemon knows, where it knows the link to be dead."""
        if asker.endpoint is None or asked.node is None:
            return False
        via = asker.endpoint.links.relay(asked.name, asker.now())
        if via is None or not self.connected(asker.name, via):
            return self.connected(asker.name, asked.name)
        there = self.cluster.hosts[via].node is not None
        return there and self.connected(via, asked.name)

    # --- faults -----------------------------------------------------------------------------------

    def cut(self, ways: Iterable[Way], close: bool) -> Callable[[], None]:
        """Nothing passes along ``ways``; ``close`` ends the connections, else they stall.

        Returns what heals the cut: what stalled arrives then, what was closed is dialled again.
        """
        ways = tuple(ways)
        for way in ways:
            self._cut[way] += 1
            if close:
                self._close(_pair(*way), "its connection failed: timed out")
        return lambda: self._heal(ways)

    def _heal(self, ways: tuple[Way, ...]) -> None:
        for way in ways:
            self._cut[way] -= 1
            if self._cut[way]:
                continue
            sender, to = way
            session = self._sessions.get(_pair(sender, to))
            if session is None:
                self._dial(sender, to)
                continue
            held, session.pipes[sender].held = session.pipes[sender].held, []
            for action in held:
                self._carry(session, sender, to, action)

    def clog(self, way: Way, seconds: float) -> Callable[[], None]:
        """Messages of one direction take up to ``seconds``; returns what ends that."""
        self._slow[way] = seconds
        return lambda: self._unclog(way)

    def _unclog(self, way: Way) -> None:
        self._slow.pop(way, None)

    def flap(self, a: NodeId, b: NodeId) -> None:
        """A connection closes and is made again at once; what was on its way is lost."""
        self._close(_pair(a, b), "its connection failed: reset")
        self._dial(a, b)

    def _mishap(self, sender: NodeId, to: NodeId) -> Mishap | None:
        """What befalls this message, by the weather or as given."""
        self._sent[sender, to] += 1
        number = self._sent[sender, to]
        found = None
        if self._given is not None:
            found = self._given.get((sender, to, number))
        elif self.rough:
            chance, weather = (
                self.cluster.chances.of("weather", sender, to),
                self.cluster.setup.weather,
            )
            if kind := weather.draw(chance):
                seconds = chance.uniform(*weather.delay_seconds)
                found = Mishap(sender, to, number, kind, seconds)
        if found is not None:
            self.mishaps.append(found)
        return found

    # --- sessions ---------------------------------------------------------------------------------

    def _dial(self, a: NodeId, b: NodeId) -> None:
        delay = self._connecting(a).uniform(*_RECONNECT_SECONDS)
        self.cluster.after(delay, lambda: self._connect(_pair(a, b)))

    def _connecting(self, node: NodeId) -> random.Random:
        return self.cluster.chances.of("connections", node)

    def _connect(self, pair: Way) -> None:
        a, b = (self.cluster.hosts[node] for node in pair)
        cut = self._cut[pair] or self._cut[pair[1], pair[0]]
        if pair in self._sessions or cut or a.node is None or b.node is None:
            return
        if not self.cluster.mixture.agree(a, b):
            return
        self._numbers += 1
        boots = {host.name: host.boot for host in (a, b)}
        ways = zip(pair, pair[::-1], strict=True)
        pipes = {way[0]: Pipe(self.cluster.chances.of("link", *way)) for way in ways}
        session = SimulatedSession(self._numbers, boots, pipes)
        self._sessions[pair] = session
        for node, other in (pair, pair[::-1]):
            self._announce(session, node, other)

    def _announce(self, session: SimulatedSession, node: NodeId, other: NodeId) -> None:
        def up() -> None:
            if self._sessions.get(_pair(node, other)) is session:
                session.pipes[node].up = True
                self._post(node, e.PeerUp(other, session.boots[other], f"{other}:1"))
                self.cluster.addresses.met(self.cluster.hosts[node], other)

        # A daemon hears of the end of one connection before it hears of the next one.
        wait = max(0.0, self._down_at.get((node, other), 0.0) - self.cluster.now)
        wait += self._connecting(node).uniform(0.0, 0.004)
        session.pipes[node].up_at = self.cluster.now + wait
        self.cluster.after(wait, up)

    def _close(self, pair: Way, reason: str) -> None:
        session = self._sessions.pop(pair, None)
        if session is None:
            return
        for node, other in (pair, pair[::-1]):
            if session.pipes[node].up:
                self._tell_closed(session, node, other, reason)

    def _tell_closed(
        self, session: SimulatedSession, node: NodeId, other: NodeId, reason: str
    ) -> None:
        boot = session.boots[node]
        delay = max(session.pipes[other].last, self.cluster.now) - self.cluster.now
        delay += self._connecting(node).uniform(*self.cluster.setup.message_seconds)
        self._down_at[(node, other)] = self.cluster.now + delay

        def down() -> None:
            if self.cluster.hosts[node].boot == boot:
                self._post(node, e.PeerDown(other, session.boots[other], reason))

        self.cluster.after(delay, down)

    def _carry(
        self,
        session: SimulatedSession,
        sender: NodeId,
        to: NodeId,
        action: Callable[[], None],
        extra_seconds: float = 0.0,
    ) -> None:
        """FIFO: nothing overtakes, neither on the way nor in the receiver's socket buffer.

        What ``extra_seconds`` hold up, a lost packet that TCP sends again, holds up all behind it.
        """
        pipe, way = session.pipes[sender], (sender, to)
        if self._cut and self._cut[way]:
            pipe.held.append(action)
            return
        delay = extra_seconds + pipe.chance.uniform(*self.cluster.setup.message_seconds)
        if self._slow and way in self._slow:
            delay += pipe.chance.uniform(0.0, self._slow[way])
        # What comes before the receiver has its own connection waits for that.
        pipe.last = max(pipe.last, self.cluster.now + delay, session.pipes[to].up_at) + 1e-7
        boot = session.boots[to]

        def arrive() -> None:
            # Bytes that the kernel had taken arrive even if the sender is gone.
            if self.cluster.hosts[to].boot == boot:
                action()

        self.cluster.after(pipe.last - self.cluster.now, arrive)

    def _overtaken(
        self, session: SimulatedSession, to: NodeId, arrive: Callable[[], None], seconds: float
    ) -> None:
        """A frame that keeps no order, and comes even over a connection that has ended."""
        boot = session.boots[to]

        def late() -> None:
            if self.cluster.hosts[to].boot == boot:
                arrive()

        up_at = max(0.0, session.pipes[to].up_at - self.cluster.now)
        self.cluster.after(up_at + seconds, late)

    def _post(self, node: NodeId, event: e.Inward) -> None:
        self.cluster.hosts[node].post(event)


def _pair(a: NodeId, b: NodeId) -> Way:
    return (a, b) if a < b else (b, a)
