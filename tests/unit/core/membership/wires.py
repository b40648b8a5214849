"""Nodes joined back to back, for tests of what they agree on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count

from elasticd.core.node import Node, Who
from elasticd.core.recall import Recall
from elasticd.core.words import effects as e
from elasticd.core.words.stable import Found
from elasticd.types import NodeId


class Wires:
    """Nodes joined back to back; time moves only when told."""

    def __init__(self, *names: NodeId, expected: int | None = None, strict: bool = False) -> None:
        self.strict = strict
        self.now = 100.0
        self.nonces: Iterator[int] = count()
        self.expected = len(names) - 1 if expected is None else expected
        self.boots: dict[NodeId, int] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.up: set[frozenset[NodeId]] = set()
        self.sent: deque[tuple[NodeId, e.Send]] = deque()
        self.held: set[NodeId] = set()
        self.journal: list[tuple[NodeId, str]] = []
        self.disks: dict[NodeId, Recall] = {}
        self.emitted: list[e.Emit] = []
        for name in names:
            self.start(name)

    def start(self, name: NodeId) -> None:
        self.boots[name] = self.boots.get(name, 0) + 1
        boot = f"{name}{self.boots[name]}"
        disk = self.disks.setdefault(name, Recall())
        who = Who(name, boot, lambda: f"{next(self.nonces):04x}", self.expected, strict=self.strict)
        self.nodes[name] = Node(who, Found(disk.stable))
        self.post(name, e.Tick())

    def post(self, name: NodeId, event: e.Event) -> None:
        for effect in self.nodes[name].step(self.now, event):
            if isinstance(effect, e.Send):
                self.sent.append((name, effect))
            elif isinstance(effect, e.Persist):
                self.journal.append((name, effect.kind))
                self.disks[name].absorb(effect.kind, effect.record)
            elif isinstance(effect, e.Emit):
                self.emitted.append(effect)
        self.nodes[name].next_deadline()  # As every driver does.

    def connect(self, *names: NodeId) -> None:
        for one in names:
            for other in names:
                if one < other:
                    self.up.add(frozenset((one, other)))
                    for me, peer in ((one, other), (other, one)):
                        boot = f"{peer}{self.boots[peer]}"
                        self.post(me, e.PeerUp(peer, boot, f"{peer}:1"))
        self.settle()

    def disconnect(self, name: NodeId) -> None:
        for pair in [pair for pair in self.up if name in pair]:
            self.part(pair)
        self.settle()

    def part(self, pair: frozenset[NodeId]) -> None:
        """The connection between two nodes closes."""
        self.up.discard(pair)
        for me in pair:
            (other,) = pair - {me}
            self.post(me, e.PeerDown(other, f"{other}{self.boots[other]}", "closed"))

    def kill(self, name: NodeId) -> None:
        boot = f"{name}{self.boots[name]}"
        del self.nodes[name]
        for pair in [pair for pair in self.up if name in pair]:
            self.up.discard(pair)
            (other,) = pair - {name}
            self.post(other, e.PeerDown(name, boot, "closed"))
        self.settle()

    def settle(self) -> None:
        """Deliver until nothing is on its way."""
        for _ in range(10_000):
            if not self.sent:
                return
            self.deliver(*self.sent.popleft())
        raise AssertionError("the nodes do not come to rest")

    def deliver(self, sender: NodeId, send: e.Send) -> None:
        """What a node sends reaches another that it is connected with."""
        there = frozenset((sender, send.to)) in self.up and send.to in self.nodes
        if there and send.to not in self.held:
            self.post(send.to, e.Received(sender, send.message))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            deadlines = [node.next_deadline() for node in self.nodes.values()]
            self.now = max(self.now + 0.001, min([end, *deadlines]))
            for name in list(self.nodes):
                self.post(name, e.Tick())
            self.settle()

    def views(self) -> dict[NodeId, tuple[NodeId, ...]]:
        found = {}
        for name, node in self.nodes.items():
            view = node.views.view
            found[name] = view.members if view is not None else ()
        return found

    def epochs(self) -> set[str]:
        return {str(node.views.epoch) for node in self.nodes.values()}
