"""Views of more nodes than hear one another: two such, cut apart and joined again."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from itertools import count, permutations

import pytest

from elasticd.core.membership.overlay import FULL_MESH_NODES
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.views import Missing
from elasticd.types import NodeId


class Crowd:
    """Nodes that share a view, and messages with a small delay. Nobody's connection closes."""

    def __init__(self, size: int) -> None:
        self.now = 100.0
        self.cut: frozenset[NodeId] = frozenset()
        """Between these and the others nothing passes."""
        self.sent = 0
        self._chance = random.Random(size)
        self._serial, self._nonces = count(), count()
        self._ahead: list[tuple[float, int, NodeId, e.Event]] = []
        names = [NodeId(f"n{number:03}") for number in range(size)]
        self.nodes = {
            name: Node(Who(name, f"{name}.1", lambda: f"{next(self._nonces):06x}", size - 1))
            for name in names
        }
        for name in names:
            self._post(name, e.Tick())
        for name, peer in permutations(names, 2):
            self._post(name, e.PeerUp(peer, f"{peer}.1", ""))

    def _post(self, name: NodeId, event: e.Event) -> None:
        for effect in self.nodes[name].step(self.now, event):
            if isinstance(effect, e.Send) and (name in self.cut) == (effect.to in self.cut):
                self.sent += 1
                self._push(0.001, effect.to, e.Received(name, effect.message))
        self._push(self.nodes[name].next_deadline() - self.now, name, e.Tick())

    def _push(self, seconds: float, name: NodeId, event: e.Event) -> None:
        at = self.now + seconds + self._chance.uniform(0.0, 0.001)
        heapq.heappush(self._ahead, (at, next(self._serial), name, event))

    def run(self, until: Callable[[], bool], seconds: float) -> bool:
        """False if it did not come so within so many seconds."""
        end = self.now + seconds
        for number in count():
            if number % 500 == 0 and until():
                return True
            if self._ahead[0][0] > end:
                self.now = end
                return until()
            self.now, _, name, event = heapq.heappop(self._ahead)
            if not isinstance(event, e.Tick) or self.now >= self.nodes[name].due:
                self._post(name, event)
        raise AssertionError("count() ended")

    def agree(self, names: Iterable[NodeId]) -> bool:
        """Just these follow one view."""
        names = tuple(sorted(names))
        views = [self.nodes[name].views.view for name in names]
        return all(view is not None and view.members == names for view in views)


@pytest.mark.deep
def test_two_large_halves_part_and_meet() -> None:
    crowd = Crowd(2 * (FULL_MESH_NODES + 2))
    everybody = frozenset(crowd.nodes)
    assert crowd.run(lambda: crowd.agree(everybody), 5.0)
    half = frozenset(sorted(everybody)[::2])
    crowd.cut = half
    assert crowd.run(lambda: crowd.agree(half) and crowd.agree(everybody - half), 6.0)
    assert all(node.liveness.circle.sparse for node in crowd.nodes.values())
    crowd.cut = frozenset()
    assert crowd.run(lambda: crowd.agree(everybody), 6.0)


def test_an_idle_node_sends_to_a_few() -> None:
    crowd = Crowd(FULL_MESH_NODES + 2)
    assert crowd.run(lambda: crowd.agree(crowd.nodes), 5.0)
    crowd.run(lambda: False, 1.5)
    crowd.sent = 0
    crowd.run(lambda: False, 1.0)
    assert crowd.sent <= 41 * len(crowd.nodes)


def test_who_has_given_up_its_view_convicts_nobody() -> None:
    """Word from those that it followed one with is still on its way."""
    crowd = Crowd(FULL_MESH_NODES + 2)
    assert crowd.run(lambda: crowd.agree(crowd.nodes), 5.0)
    name, accused, *others = crowd.nodes
    node = crowd.nodes[name]
    node.liveness.follow_none()
    for other in others:
        node.step(crowd.now, e.Received(other, Missing(accused, f"{accused}.1", 2.0)))
    assert accused in node.liveness.peers
