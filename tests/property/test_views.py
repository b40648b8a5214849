"""Whatever happened to nodes and links: once all is whole, all nodes share one view again."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.types import NodeId
from tests.unit.core.membership.wires import Wires

NAMES = tuple(map(NodeId, "abcd"))
HEALED_SECONDS = 40.0
"""Enough for a node that flapped as often as here to be let in."""


@dataclass(frozen=True)
class Mishap:
    """Something breaks, then so much time passes; some of it is mended after that."""

    kind: str
    one: NodeId
    other: NodeId
    seconds: float
    mended: bool


MISHAPS = st.builds(
    Mishap,
    st.sampled_from(["cut", "cut both ways", "closed", "stopped", "killed", "left"]),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.sampled_from([0.05, 0.3, 0.8, 1.4, 1.7, 2.2, 4.0]),
    st.booleans(),
)


class Storm(Wires):
    """Links that stall or close, nodes that stop, die, or leave."""

    def __init__(self, size: int, *, strict: bool) -> None:
        self.names = NAMES[:size]
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.stopped: dict[NodeId, Node] = {}
        self.stalled: list[tuple[NodeId, e.Send]] = []
        self.unread: list[tuple[NodeId, e.Event]] = []
        super().__init__(*self.names, strict=strict)
        self.connect(*self.names)

    def post(self, name: NodeId, event: e.Event) -> None:
        if name in self.stopped:
            self.unread.append((name, event))
        else:
            super().post(name, event)

    def deliver(self, sender: NodeId, send: e.Send) -> None:
        if (sender, send.to) in self.cut or send.to in self.stopped:
            self.stalled.append((sender, send))
        else:
            super().deliver(sender, send)

    def strike(self, mishap: Mishap) -> None:
        one, other = mishap.one, mishap.other
        if one not in self.names or other not in self.names:
            return
        match mishap.kind:
            case "cut" if one != other:
                self.cut.add((one, other))
            case "cut both ways" if one != other:
                self.cut |= {(one, other), (other, one)}
            case "closed" if (pair := frozenset((one, other))) in self.up:
                self.part(pair)
                self.settle()
            case "stopped" if one in self.nodes:
                self.stopped[one] = self.nodes.pop(one)
            case "killed" if one in self.nodes:
                self.kill(one)
                self.start(one)
            case "left" if one in self.nodes:
                self.post(one, e.Leave("it is drained"))
        self.wait(mishap.seconds)
        if mishap.mended:
            self.mend(one)

    def mend(self, one: NodeId) -> None:
        """All that ails one node, and its links."""
        self.cut = {way for way in self.cut if one not in way}
        if one in self.stopped:
            self.nodes[one] = self.stopped.pop(one)
            self.post(one, e.Tick())
            unread, self.unread = self.unread, []
            for name, event in unread:
                self.post(name, event)
        self.post(one, e.Stay())
        self.sent.extend(self.stalled)
        self.stalled.clear()
        self.settle()
        for other in self.names:
            pair = frozenset((one, other))
            if other != one and pair not in self.up and other in self.nodes:
                self.connect(*sorted(pair))


@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=25, deadline=None)
@given(size=st.integers(2, 4), mishaps=st.lists(MISHAPS, max_size=8))
def test_one_view_is_left_when_all_is_whole(strict: bool, size: int, mishaps: list[Mishap]) -> None:
    storm = Storm(size, strict=strict)
    for mishap in mishaps:
        storm.strike(mishap)
    for name in storm.names:
        storm.mend(name)
    storm.wait(HEALED_SECONDS)
    assert set(storm.views().values()) == {storm.names}, storm.views()
    assert len(storm.epochs()) == 1
