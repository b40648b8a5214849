"""What is told of more checkpoints than a message takes: nothing is lost that could be restored."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace

import pytest

from elasticd.checkpoints.choose import newest
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.checkpoints.tellable import MOST_BYTES, _bytes, tellable
from elasticd.core.words.codec import to_plain
from elasticd.ipc.frames import encode
from elasticd.types import Lineage, NodeId, Point
from tests.unit.checkpoints.test_choose import A, B, C, at

D = NodeId("d")
NODES = (A, B, C, D)
FIRST = Lineage("line-0")


@dataclass
class History:
    """Checkpoints that worlds have written, one world behind the other."""

    step: int = 0
    lineage: Lineage = FIRST
    parent: Point | None = None
    made: list[Manifest] = field(default_factory=list)
    """Of the line that is trained."""
    stored: dict[NodeId, list[Stored]] = field(default_factory=lambda: {n: [] for n in NODES})

    parents: set[Point] = field(default_factory=set)

    def is_known_to(self, node: NodeId) -> bool:
        """Whether its own checkpoints say where lineages were opened."""
        return self.parents <= {each.manifest.parent for each in self.stored[node]}

    def train(self, count: int, holders: tuple[tuple[NodeId, ...], ...]) -> None:
        """A world stores so many checkpoints, each shard on these."""
        for _ in range(count):
            self.step += 1
            manifest = replace(at(self.step, self.lineage, self.parent), holders=holders)
            self.made.append(manifest)
            for node in {n for nodes in holders for n in nodes}:
                self.stored[node].append(Stored(manifest, manifest.held_by(node)))

    def part(self, back: int) -> None:
        """Go on under another name from an older checkpoint."""
        self.made = self.made[: len(self.made) - back]
        self.parent, self.step = self.made[-1].point, self.made[-1].step
        self.parents.add(self.parent)
        self.lineage = Lineage(f"line-{int(self.lineage[5:]) + 1}")


def test_of_few_all_is_told() -> None:
    stored = [Stored(at(step), (0, 1, 2)) for step in range(500)]
    assert tellable(stored) == tuple(stored)


def test_of_many_the_newest_are_told_and_some_far_back() -> None:
    stored = [Stored(at(step), (0, 1, 2)) for step in range(20_000)]
    told = [each.manifest.step for each in tellable(stored)]
    assert told == sorted(told) and len(told) > 500
    assert told[-500:] == list(range(19_500, 20_000))
    assert set(told) > {19_999 - (1 << power) for power in range(14)}
    assert len(encode({"stored": to_plain(tellable(stored))})) <= MOST_BYTES


def test_no_checkpoint_takes_more_than_is_reckoned() -> None:
    for count, names in itertools.product((1, 3), ("a", "n" * 63)):
        manifest = at((1 << 52), "l" * 64, Point(Lineage("l" * 64), 1 << 52, at(1).stamp))
        manifest = replace(
            manifest, count=count, shards=manifest.shards[:count],
            holders=((NodeId(names),) * 8,) * count, metric=0.1,
        )  # fmt: skip
        stored = Stored(manifest, tuple(range(count)))
        assert len(encode({"stored": to_plain(stored)})) <= _bytes(stored)


@pytest.mark.parametrize("seed", range(40))
def test_whoever_lives_restores_the_same_as_if_all_were_told(seed: int) -> None:
    rng = random.Random(seed)
    history = History()
    for _ in range(6):
        members = rng.sample(NODES, rng.randint(1, 4))
        copies = rng.randint(1, len(members))
        holders = tuple(
            tuple((members * 2)[(i % len(members)) : (i % len(members)) + copies]) for i in range(3)
        )
        history.train(rng.randint(30, 60), holders)
        if rng.random() < 0.5:
            history.part(rng.randint(1, 25))
    # What is told of one node is far less than it has.
    told = {node: tellable(items, 60_000) for node, items in history.stored.items()}
    assert all(len(told[n]) <= 60 for n in NODES)
    for count in range(1, 5):
        for alive in itertools.combinations(NODES, count):
            best, found = (
                newest({n: of[n] for n in alive}, history.lineage, history.parent)
                for of in (history.stored, told)
            )
            assert (best is None) == (found is None), alive
            if best is not None and found is not None and all(map(history.is_known_to, alive)):
                assert best.manifest.point == found.manifest.point, alive
