"""What membership costs as a cluster grows: messages when idle, time to agree after a death.

The production state machine in simulated time: a full mesh up to 64 nodes, above that the
overlay (core/membership/overlay.py). Acknowledgements of sessions are not counted: one for each
message but heartbeats where nothing else goes that way. Prints a table and draws it as SVG.
Run: ``python tests/benchmarks/bench_scale.py [--nodes 2,8,32] [--svg FILE]``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from math import log10
from pathlib import Path
from time import process_time

from elasticd.core.membership.roll import Peer
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.records import View
from elasticd.types import NodeId, Tag

SIZES = (2, 8, 32, 64, 128, 512, 1000)
IDLE_SECONDS = 1.0
DELAY_SECONDS = (0.0002, 0.001)
LIMIT_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class ScaleFigures:
    """Of one size. Seconds are simulated: from the death to the first that is silent for too long,
    and from there until every living node follows a view without it."""

    nodes: int
    idle_messages: float
    """A second and node."""
    detect_seconds: float
    agree_seconds: float
    agree_messages: float
    """A node, all kinds but heartbeats, until the view has formed."""
    leader_agree_seconds: float
    cpu_seconds: float
    """What the simulation took."""


class Mesh:
    """Nodes that share a view, and messages with a small delay. Nobody's connection closes."""

    def __init__(self, size: int) -> None:
        self.names = [NodeId(f"n{number:04}") for number in range(size)]
        self.chance = random.Random(size)
        self.now = 1000.0
        self.sent: Counter[str] = Counter()
        self.dead: set[NodeId] = set()
        self.silent_at = 0.0
        self._serial = count()
        self._heap: list[tuple[float, int, NodeId, e.Event]] = []
        self._armed: dict[NodeId, float] = {}
        nonces = count()
        view = View(Tag(1, self.names[0], "first"), tuple(self.names))
        self.nodes = {
            name: Node(Who(name, f"{name}.1", lambda: f"{next(nonces):06x}", size - 1))
            for name in self.names
        }
        self._links = {name: (f"{name}.1", "", 0) for name in self.names}
        for name, node in self.nodes.items():
            self._settle(name, node, view)

    def _settle(self, name: NodeId, node: Node, view: View) -> None:
        """As it is a while after the view was formed: beats are spread over the interval."""
        views, liveness = node.views, node.liveness
        node.step(self.now, e.Tick())
        others = [other for other in self.names if other != name]
        liveness.roll.links = {other: self._links[other] for other in others}
        liveness.roll.peers = {n: Peer(self._links[n][0], "", 0, view.epoch) for n in others}
        views.promised = view.epoch
        node.ctx.saw(view.epoch.counter)
        node.ctx.effects = []
        views._install(view)
        for peer in liveness.attention.minded():
            liveness.detector.meet(peer, self.now)
        node.followed = view.epoch
        liveness.pulse.next_at = self.now + self.chance.uniform(
            0.0, node.ctx.timing.heartbeat_seconds
        )
        self._arm(name)

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, name, event = heapq.heappop(self._heap)
            if name in self.dead or (isinstance(event, e.Tick) and self._armed[name] != self.now):
                continue
            self._step(name, event)
        self.now = until

    def _step(self, name: NodeId, event: e.Event) -> None:
        for effect in self.nodes[name].step(self.now, event):
            if isinstance(effect, e.Send):
                self.sent[type(effect.message).__name__] += 1
                if effect.to not in self.dead:
                    at = self.now + self.chance.uniform(*DELAY_SECONDS)
                    received = e.Received(name, effect.message)
                    heapq.heappush(self._heap, (at, next(self._serial), effect.to, received))
            elif isinstance(effect, e.Log) and "silent" in str(effect.fields):
                self.silent_at = self.silent_at or self.now
        self._arm(name)

    def _arm(self, name: NodeId) -> None:
        at = max(self.now + 0.001, self.nodes[name].next_deadline())
        if self._armed.get(name) != at:
            self._armed[name] = at
            heapq.heappush(self._heap, (at, next(self._serial), name, e.Tick()))

    def agreed(self, without: NodeId) -> bool:
        """All that live follow one view, in which ``without`` is not."""
        living = [node.views for name, node in self.nodes.items() if name not in self.dead]
        first = living[0].view
        if first is None or without in first.members:
            return False
        return all(views.epoch == first.epoch for views in living)


def measure(size: int) -> ScaleFigures:
    began = process_time()
    mesh = Mesh(size)
    mesh.run(mesh.now + IDLE_SECONDS)
    idle = mesh.sent.total() / size / IDLE_SECONDS
    detect, agree, messages = kill(mesh, mesh.names[-1])
    leader = kill(mesh, mesh.names[0])[1] if size > 2 else 0.0
    spent = process_time() - began
    return ScaleFigures(size, round(idle, 1), round(detect, 3), round(agree, 3), round(messages, 1),
                   round(leader, 3), round(spent, 1))  # fmt: skip


def kill(mesh: Mesh, victim: NodeId) -> tuple[float, float, float]:
    """Power fails at a node. Seconds to see it and to agree, messages a node for that."""
    mesh.dead.add(victim)
    mesh.sent.clear()
    mesh.silent_at, died = 0.0, mesh.now
    while not mesh.agreed(victim):
        if mesh.now - died > LIMIT_SECONDS:
            raise SystemExit(f"{len(mesh.names)} nodes do not agree within {LIMIT_SECONDS} s")
        mesh.run(mesh.now + 0.01)
    messages = sum(n for kind, n in mesh.sent.items() if kind != "Heartbeat") / len(mesh.names)
    return mesh.silent_at - died, mesh.now - mesh.silent_at, messages


def draw(found: Sequence[ScaleFigures]) -> str:
    """Two curves over the number of nodes, all axes logarithmic."""
    width, height, left, bottom = 640, 360, 60, 40
    span = log10(found[-1].nodes) - log10(found[0].nodes) or 1.0

    def x(nodes: int) -> float:
        return left + (log10(nodes) - log10(found[0].nodes)) / span * (width - left - 20)

    def y(value: float) -> float:
        return height - bottom - (log10(max(value, 0.01)) + 2) / 5 * (height - bottom - 20)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for power in range(-2, 4):
        at = y(10.0**power)
        parts.append(f'<path d="M{left} {at:.1f}H{width - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="6" y="{at + 4:.1f}">{10.0**power:g}</text>')
    for each in found:
        at = x(each.nodes)
        parts.append(f'<text x="{at - 8:.1f}" y="{height - 20}">{each.nodes}</text>')
    curves = (
        ("messages a second and node, idle", "#1668b8", [f.idle_messages for f in found]),
        ("seconds to see a death", "#2a9d4a", [f.detect_seconds for f in found]),
        ("seconds to agree after it was seen", "#c0392b", [f.agree_seconds for f in found]),
    )
    for row, (label, colour, values) in enumerate(curves):
        points = " ".join(
            f"{x(f.nodes):.1f},{y(v):.1f}" for f, v in zip(found, values, strict=True)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        parts.append(f'<text x="{left + 8}" y="{30 + 16 * row}" fill="{colour}">{label}</text>')
    parts.append(f'<text x="{width / 2 - 20}" y="{height - 4}">nodes</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default=",".join(map(str, SIZES)), help="sizes, by comma")
    parser.add_argument(
        "--svg", type=Path, default=Path("bench-results/scale.svg"), help="the plot's file"
    )
    parser.add_argument("--json", action="store_true", help="one object a line, no table")
    given = parser.parse_args()
    found: list[ScaleFigures] = []
    for size in (int(text) for text in given.nodes.split(",")):
        figures = measure(size)
        found.append(figures)
        if given.json:
            print(json.dumps(asdict(figures)), flush=True)
            continue
        if len(found) == 1:
            print(
                "nodes  idle msg/s/node  detect s  agree s  agree msg/node  leader agree s  CPU s"
            )
        print(
            f"{size:5}  {figures.idle_messages:15.1f}  {figures.detect_seconds:8.3f}"
            f"  {figures.agree_seconds:7.3f}  {figures.agree_messages:14.1f}"
            f"  {figures.leader_agree_seconds:14.3f}  {figures.cpu_seconds:5.1f}",
            flush=True,
        )
    given.svg.parent.mkdir(parents=True, exist_ok=True)
    given.svg.write_text(draw(found))
    print(f"plot: {given.svg}", file=sys.stderr)


if __name__ == "__main__":
    main()
