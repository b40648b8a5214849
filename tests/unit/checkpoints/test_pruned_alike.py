"""Nodes come and go, lineages fork, and each node prunes by what it has itself: none may remove
what the others have to keep."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from elasticd.checkpoints import choose, summary
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.retention import (
    KeepBest,
    KeepEvery,
    KeepHours,
    KeepLast,
    Policy,
    missing,
    overtaken,
)
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

NODES = [NodeId(name) for name in "nop"]
FIRST = Lineage("A")
STORIES = int(os.environ.get("ELASTICD_TEST_STORIES", "20"))
"""With each of the policies; 400 and more take a minute."""
POLICIES: list[list[Policy]] = [
    [KeepLast(3)],
    [KeepLast(1)],
    [KeepLast(2), KeepEvery(15)],
    [KeepLast(2), KeepHours(1.0)],
    [KeepLast(2), KeepBest()],
]


@dataclass
class Story:
    """One job. ``disks``: what each node has, by state."""

    rng: random.Random
    policies: Sequence[Policy]
    disks: dict[NodeId, dict[Point, Stored]] = field(
        default_factory=lambda: {node: {} for node in NODES}
    )
    lineage: Lineage = FIRST
    parent: Point | None = None
    step: int = 0
    checkpoints: int = 0
    told: list[str] = field(default_factory=list)

    def reports(self, nodes: Sequence[NodeId]) -> dict[NodeId, tuple[Stored, ...]]:
        return {node: tuple(self.disks[node].values()) for node in nodes}

    def fork(self, present: Sequence[NodeId]) -> None:
        """Another lineage goes on, from what a trainer holds or from a disk."""
        choice = choose.newest(self.reports(present), self.lineage, self.parent)
        held = Point(self.lineage, self.step + self.rng.randrange(5), Stamp("ff"))
        if choice is not None and self.rng.random() < 0.5:
            held = choice.manifest.point
        if any(p.lineage == self.lineage for disk in self.disks.values() for p in disk):
            self.parent = held
        self.lineage = Lineage(chr(ord(self.lineage) + 1))
        self.step = held.step - held.step % 5
        self.told.append(f"{self.lineage} opens after {self._named(self.parent)}")

    @staticmethod
    def _named(point: Point | None) -> str:
        return f"{point.lineage}{point.step}" if point is not None else "nothing"

    def checkpoint(self, present: Sequence[NodeId]) -> Manifest:
        self.step += 5
        self.checkpoints += 1
        count = len(present)
        shards = tuple(Shard(i, 1, f"{i:064x}") for i in range(count))
        holders = tuple(
            tuple(present[(i + k) % count] for k in range(min(2, count))) for i in range(count)
        )
        stamp = Stamp(f"{ord(self.lineage):04x}{self.step:04x}")
        generation = Tag(self.checkpoints, present[0], "x")
        made = Manifest(
            *(JobId("job"), self.lineage, self.parent, self.step, stamp, generation, 0, 8, count),
            *(shards, holders, "00", self.checkpoints * 1000.0),
            metric=self.rng.random(),
        )
        for node in present:
            self.disks[node][made.point] = Stored(made, made.held_by(node))
        self.told.append(f"{self.lineage}{self.step} on {''.join(present)}")
        return made

    def prune(self, made: Manifest, present: Sequence[NodeId]) -> None:
        for node in present:
            known = [item.manifest for item in self.disks[node].values()]
            for old in overtaken(known, self.policies, made.step, made.lineage):
                del self.disks[node][old.point]
                self.told.append(f"{node} removes {old.lineage}{old.step}")

    def missing(self, nodes: Sequence[NodeId]) -> list[str]:
        """As ``checkpoints verify``, when these answer."""
        rows = summary.rows(self.reports(nodes))
        return [
            f"{self._named(row.manifest.point)} on {node}"
            for node in nodes
            for row, _ in missing(rows, self.policies, node)
        ]


@pytest.mark.parametrize("policies", POLICIES)
def test_what_one_node_removes_the_others_do_not_miss(policies: list[Policy]) -> None:
    first = int(os.environ.get("ELASTICD_TEST_SEED", "0")) or random.randrange(1 << 32)
    for seed in range(first, first + STORIES):
        rng = random.Random(seed)
        story, present = Story(rng, policies), list(NODES)
        for _ in range(12):
            if rng.random() < 0.5:
                present = sorted(rng.sample(NODES, rng.randint(2, 3)))
            if rng.random() < 0.4:
                story.fork(present)
            story.prune(story.checkpoint(present), present)
            for nodes in (present, NODES):
                told = "; ".join(story.told)
                assert story.missing(nodes) == [], f"ELASTICD_TEST_SEED={seed}: {nodes}: {told}"
