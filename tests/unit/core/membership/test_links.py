"""Links that die while the nodes live: endpoints joined by wires that can be cut one way."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count, permutations
from typing import Any

import pytest

from elasticd.core.endpoint import Endpoint
from elasticd.core.membership.links import Links
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.frames import decode_frame, encode_frame
from elasticd.core.words.records import Path
from elasticd.types import NodeId

A, B, C, D = NodeId("a"), NodeId("b"), NodeId("c"), NodeId("d")
DELAY_SECONDS = 0.002


class Mesh:
    """Endpoints, the wires between them, and simulated time. Stopped ones take nothing in."""

    def __init__(self, *names: NodeId) -> None:
        self.now = 100.0
        self.endpoints: dict[NodeId, Endpoint] = {}
        self.cut: set[tuple[NodeId, NodeId]] = set()
        """Directions in which nothing passes, without anybody being told."""
        self.closed: set[frozenset[NodeId]] = set()
        self.stopped: set[NodeId] = set()
        self.events: list[tuple[float, NodeId, e.Emit]] = []
        self.formed: list[NodeId] = []
        self._way: list[tuple[float, int, NodeId, e.Arrived]] = []
        self._serial, self._nonces = count(), count()
        for name in names:
            self.start(name, len(names) - 1)
        for a, b in permutations(names, 2):
            self.post(a, e.PeerUp(b, f"{b}1", f"{b}:1"))
        self.wait(2.0)

    def start(self, name: NodeId, expected: int) -> None:
        node = Node(Who(name, f"{name}1", lambda: f"{next(self._nonces):04x}", expected))
        self.endpoints[name] = Endpoint(node)
        self.post(name, e.Tick())

    def post(self, name: NodeId, event: e.Inward) -> None:
        self.perform(name, self.endpoints[name].step(self.now, event))

    def perform(self, name: NodeId, effects: Sequence[e.Outward]) -> None:
        for effect in effects:
            match effect:
                case e.Transmit(to, frame):
                    blocked = (name, to) in self.cut or frozenset((name, to)) in self.closed
                    if not blocked:
                        arrived = e.Arrived(name, decode_frame(encode_frame(frame)))
                        at = self.now + DELAY_SECONDS
                        heapq.heappush(self._way, (at, next(self._serial), to, arrived))
                case e.Emit():
                    self.events.append((self.now, name, effect))
                case e.Persist("view_formed"):
                    self.formed.append(name)

    def close(self, one: NodeId, other: NodeId) -> None:
        """Both connections between them end, and no new ones come up."""
        self.closed.add(frozenset((one, other)))
        for me, peer in ((one, other), (other, one)):
            self.post(me, e.PeerDown(peer, f"{peer}1", "its connection failed: reset"))

    def mend(self, one: NodeId, other: NodeId) -> None:
        self.cut -= {(one, other), (other, one)}
        if frozenset((one, other)) in self.closed:
            self.closed.discard(frozenset((one, other)))
            for me, peer in ((one, other), (other, one)):
                self.post(me, e.PeerUp(peer, f"{peer}1", f"{peer}:1"))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        steps = 0
        while True:
            due = min((ep.next_deadline() for n, ep in self._running()), default=end)
            if self._way:
                due = min(due, self._way[0][0])
            if due > end:
                break
            steps += 1
            assert steps < 2000 * max(1.0, seconds), "timers that fire when nothing can be done"
            self.now = max(self.now, due)
            while self._way and self._way[0][0] <= self.now:
                _, _, to, arrived = heapq.heappop(self._way)
                if to not in self.stopped:
                    self.post(to, arrived)
            for name, endpoint in self._running():
                if endpoint.next_deadline() <= self.now:
                    self.post(name, e.Tick())
        self.now = end

    def _running(self) -> list[tuple[NodeId, Endpoint]]:
        return [(n, ep) for n, ep in self.endpoints.items() if n not in self.stopped]

    def views(self) -> dict[NodeId, tuple[NodeId, ...]]:
        return {
            name: ep.node.views.view.members if ep.node.views.view else ()
            for name, ep in self._running()
        }

    def told(self, kind: str) -> list[tuple[NodeId, dict[str, Any]]]:
        return [(who, emit.fields) for _, who, emit in self.events if emit.kind == kind]

    def reasons(self, kind: str) -> list[str]:
        return [emit.reason for _, _, emit in self.events if emit.kind == kind]


def test_a_dead_link_costs_no_view() -> None:
    mesh = Mesh(A, B, C)
    formed = len(mesh.formed)
    mesh.cut |= {(A, B), (B, A)}
    mesh.wait(60.0)
    assert set(mesh.views().values()) == {(A, B, C)}
    assert len(mesh.formed) == formed
    lost = mesh.told("link_lost")
    assert sorted((who, fields["culprit"], fields["via"]) for who, fields in lost) == [
        (A, B, C),
        (B, A, C),
    ]
    assert "is not heard directly" in mesh.reasons("link_lost")[0]
    assert "but through c" in mesh.reasons("link_lost")[0]


@pytest.mark.parametrize("nodes", [(A, B, C), (A, B, C, D)])
@pytest.mark.parametrize("direction", [(A, B), (B, A)])
def test_a_link_that_is_dead_in_one_direction_costs_no_view(
    nodes: tuple[NodeId, ...], direction: tuple[NodeId, NodeId]
) -> None:
    mesh = Mesh(*nodes)
    formed = len(mesh.formed)
    mesh.cut.add(direction)
    mesh.wait(30.0)
    assert set(mesh.views().values()) == {nodes}
    assert len(mesh.formed) == formed
    deaf = {(who, fields["culprit"]) for who, fields in mesh.told("link_lost")}
    assert deaf == {(direction[1], direction[0])}


def test_a_connection_that_closes_and_stays_closed_costs_no_view_either() -> None:
    mesh = Mesh(A, B, C)
    formed = len(mesh.formed)
    mesh.close(A, B)
    mesh.wait(30.0)
    assert set(mesh.views().values()) == {(A, B, C)}
    assert len(mesh.formed) == formed
    assert "its connection failed: reset" in mesh.reasons("link_lost")[0]


@pytest.mark.parametrize("closed", [False, True])
def test_messages_pass_while_the_link_is_dead(closed: bool) -> None:
    from elasticd.core.words.tables import Summary
    from elasticd.types import JobId

    mesh = Mesh(A, B, C)
    mesh.cut |= {(A, B), (B, A)}
    if closed:
        mesh.close(A, B)
    mesh.wait(3.0)
    for number in range(20):
        job = JobId(f"job-{number}")
        mesh.endpoints[A].node.ctx.effects = []
        frames = mesh.endpoints[A]._send(mesh.now, e.Send(B, Summary(job, {"n": number})))
        for effect in frames:
            if isinstance(effect, e.Transmit) and effect.to == C:
                mesh.post(C, e.Arrived(A, effect.frame))
    mesh.wait(1.0)
    assert sorted(
        fields["n"] for fields in mesh.endpoints[B].node.tables.summaries.values()
    ) == list(range(20))


def test_a_link_that_returns_is_used_again_after_it_has_proved_itself() -> None:
    mesh = Mesh(A, B, C)
    mesh.close(A, B)
    mesh.wait(5.0)
    mesh.mend(A, B)
    mesh.wait(0.5)
    assert mesh.told("link_returned") == []
    mesh.wait(3.0)
    assert sorted((who, f["culprit"]) for who, f in mesh.told("link_returned")) == [(A, B), (B, A)]
    assert mesh.endpoints[A].links.relay(B, mesh.now) is None
    assert set(mesh.views().values()) == {(A, B, C)}


def test_a_link_has_proved_itself_at_the_time_that_was_named_for_it() -> None:
    links, since = Links(0.75), 15.947832786869208
    assert since + 1.0 - since < 1.0, "rounded"
    links.up(B, since)
    link = links.of(B)
    link.lost_at, link.losses = since - 2.0, 1
    for seconds in (0.5, 0.9):
        links.heard(B, since + seconds)
    due = links.deadline(B, since + 0.9)
    assert due == since + 1.0
    assert links.deaf(B, since + 0.9)
    assert not links.deaf(B, due)


def test_a_link_that_has_proved_itself_while_nobody_cared_is_due() -> None:
    links = Links(0.75)
    links.up(B, 100.0)
    links.of(B).lost_at, links.of(B).losses = 101.0, 1
    for quarter in range(12):
        links.heard(B, 102.0 + quarter / 4)
    assert not links.deaf(B, 104.8)
    assert links.deadline(B, 104.8) <= 104.8


def test_a_link_that_flaps_is_trusted_more_and_more_slowly() -> None:
    mesh = Mesh(A, B, C)
    waits = []
    for _ in range(4):
        mesh.cut |= {(A, B), (B, A)}
        mesh.wait(4.0)
        mesh.mend(A, B)
        back, seen = mesh.now, len(mesh.told("link_returned"))
        while len(mesh.told("link_returned")) < seen + 2:
            mesh.wait(0.1)
        waits.append(mesh.now - back)
    assert waits == [pytest.approx(wait, abs=0.6) for wait in (1.0, 2.0, 4.0, 8.0)]


def test_a_dead_node_is_known_by_all_as_that() -> None:
    mesh = Mesh(A, B, C, D)
    mesh.stopped.add(D)
    mesh.wait(2.0)
    assert set(mesh.views().values()) == {(A, B, C)}
    assert mesh.told("link_lost") == []
    (lost,) = mesh.reasons("node_lost")
    assert "b and c do not hear it either" in lost


@pytest.mark.parametrize("dropped", [0, 1, 3])
def test_last_words_are_heard_though_what_was_said_before_was_never_sent(dropped: int) -> None:
    mesh = Mesh(A, B, C)
    for number in range(dropped):  # its disk refused the first effect, so that the others are lost
        effects = mesh.endpoints[A].step(mesh.now, e.Drain(number, C, number % 2 == 0))
        assert any(isinstance(effect, e.Transmit) and effect.frame.number for effect in effects)
    mesh.perform(A, mesh.endpoints[A].last_words(mesh.now, e.Leave("its disk can't be written")))
    mesh.stopped.add(A)
    mesh.wait(0.1)
    for other in (B, C):
        mesh.close(A, other)
    mesh.wait(3.0)
    assert mesh.views() == {B: (B, C), C: (B, C)}
    assert mesh.reasons("node_lost") == ["a left the view: its disk can't be written"]


def test_the_node_that_carries_may_die_too() -> None:
    mesh = Mesh(A, B, C, D)
    mesh.cut |= {(A, B), (B, A)}
    mesh.wait(3.0)
    carrier = mesh.endpoints[A].links.of(B).via
    assert carrier is not None and carrier in (C, D)
    mesh.stopped.add(carrier)
    mesh.wait(10.0)
    (rest,) = {C, D} - {carrier}
    assert set(mesh.views().values()) == {(A, B, rest)}
    assert mesh.endpoints[A].links.of(B).via == rest


@pytest.mark.parametrize("lonely", [A, B, C])
def test_a_node_with_one_link_left_stays(lonely: NodeId) -> None:
    """One link is all that a node has, and all its words go through one other node."""
    mesh = Mesh(A, B, C, D)
    formed = len(mesh.formed)
    for other in {A, B, C} - {lonely}:
        mesh.cut |= {(lonely, other), (other, lonely)}
    mesh.wait(30.0)
    assert set(mesh.views().values()) == {(A, B, C, D)}
    assert len(mesh.formed) == formed


def test_a_real_partition_is_still_one() -> None:
    mesh = Mesh(A, B, C, D)
    for pair in permutations((A, B, C, D), 2):
        if (pair[0] in (A, B)) != (pair[1] in (A, B)):
            mesh.cut.add(pair)
    mesh.wait(4.0)
    assert mesh.views() == {A: (A, B), B: (A, B), C: (C, D), D: (C, D)}
    mesh.cut.clear()
    mesh.wait(4.0)
    assert set(mesh.views().values()) == {(A, B, C, D)}


def test_a_relay_takes_no_nonsense() -> None:
    from elasticd.core.words.frames import Frame
    from elasticd.core.words.views import Carry

    mesh = Mesh(A, B, C)
    for frame in ({}, {"t": "frame", "v": 9}, encode_frame(Frame(("x", "y"), 1, 0, 0, 1, 0, None))):
        before = mesh.endpoints[B].strays
        carry = Carry(A, B, True, frame)
        mesh.post(B, e.Arrived(C, Frame(("c1", "b1"), 1, 0, 0, 1, 0, carry)))
        assert mesh.endpoints[B].strays == before + 1
    stranger = Carry(NodeId("x"), NodeId("y"), True, {})
    mesh.post(B, e.Arrived(C, Frame(("c1", "b1"), 1, 0, 0, 1, 0, stranger)))
    mesh.wait(3.0)
    assert set(mesh.views().values()) == {(A, B, C)}


TWO = ("10.0.0.b", "10.1.0.b")


def paths(*healthy: bool) -> tuple[Path, ...]:
    """Of B, at its two addresses."""
    return tuple(Path(B, host, well) for host, well in zip(TWO, healthy, strict=False))


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ((), (Path(B, "*", False),)),
        (paths(True), (Path(B, "*", False),)),
        (paths(True, True), paths(False, True)),
        (paths(False, True), paths(False, True)),
        (paths(True, False), paths(True, False)),
    ],
)
def test_what_is_told_of_the_addresses_of_a_peer_that_is_not_heard(
    known: tuple[Path, ...], told: tuple[Path, ...]
) -> None:
    mesh = Mesh(A, B, C)
    mesh.post(A, e.Paths(B, known))
    reach = mesh.endpoints[A].node.ctx.reach
    assert reach.ways() == known
    mesh.cut |= {(A, B), (B, A)}
    mesh.wait(3.0)
    assert reach.ways() == told
    mesh.mend(A, B)
    mesh.wait(30.0)
    assert reach.ways() == known


def test_where_all_connections_end_all_addresses_are_dead() -> None:
    for silent_first in (True, False):
        mesh = Mesh(A, B, C)
        mesh.post(A, e.Paths(B, paths(True, True)))
        reach = mesh.endpoints[A].node.ctx.reach
        if silent_first:
            mesh.cut |= {(A, B), (B, A)}
            mesh.wait(3.0)
        mesh.close(A, B)
        mesh.wait(3.0)
        assert reach.ways() == paths(False, False)
