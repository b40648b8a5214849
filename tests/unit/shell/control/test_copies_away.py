"""What is said of a job's checkpoints, and removed of them, while a node with copies is away."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.checkpoints.port import Problem
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.checkpoints import (
    ListCheckpoints,
    PruneCheckpoints,
    VerifyCheckpoints,
)
from elasticd.errors import StateError
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.server import Stream
from elasticd.shell.storage.retaining import Retaining
from elasticd.shell.storage.scratch import Scratch
from elasticd.shell.storage.states import States
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

JOB = JobId("job")
NODES = tuple(NodeId(f"node-{number}") for number in range(3))
AWAY = NODES[2]
BYTES = b"four"
DIGEST = hashlib.blake2b(BYTES, digest_size=32).hexdigest()
SHARDS = tuple(Shard(index, 4, DIGEST) for index in range(3))
HOLDERS = tuple((NODES[index], NODES[(index + 1) % 3]) for index in range(3))
SPEC = {
    "job": {"name": "job", "entrypoint": "train.py"},
    "batch": {"global": 8, "micro": 1},
    "train": {"steps": 20},
    "checkpoint": {"keep": 9},
}


@dataclass
class Cluster:
    """Three nodes with three shards of each of two checkpoints, each shard on two of them."""

    home: Path
    here: tuple[NodeId, ...] = NODES
    known: tuple[NodeId, ...] = NODES
    """That may have copies."""
    refuses: tuple[NodeId, ...] = ()
    frames: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stores = {node: LocalStore(self.home / node, node) for node in NODES}
        for store in self.stores.values():
            store.root.mkdir()
        for step in (10, 20):
            stamp = Stamp(f"{step:032x}")
            where = (JOB, Lineage("line"), None, step, stamp, NO_TAG)
            for node, store in self.stores.items():
                for index in (i for i in range(3) if node in HOLDERS[i]):
                    store.put_shard(JOB, step, stamp, index, 3, [BYTES], DIGEST)
                store.commit(Manifest(*where, 80, 8, 3, SHARDS, HOLDERS, "00", 0.0))

    async def send(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)

    def store_of(self, node: NodeId) -> LocalStore:
        if node in self.refuses:
            raise StateError("its disk refuses")
        return self.stores[node]

    async def read(self, node: NodeId, *where: Any) -> list[Problem]:
        return self.stores[node].verify(*where)

    async def told(self, job: JobId, *kinds: str) -> list[dict[str, Any]]:
        return []

    async def changed(self, job: JobId) -> None:
        pass

    def ask(self, request: Callable[[Inventory, Stream], Awaitable[Any]]) -> Any:
        record = cast(JobRecord, SimpleNamespace(spec=SPEC, ended=True))
        states = SimpleNamespace(
            store_of=self.store_of, retaining=Retaining(lambda job: record), changed=self.changed
        )
        inventory = Inventory(
            cast(States, states),
            lambda: self.here,
            lambda: self.known,
            lambda job: record,
            self.told,
            self.read,
            Scratch(self.home),
        )

        async def story() -> Any:
            return await request(inventory, cast(Stream, self))

        try:
            return asyncio.run(story())
        finally:
            inventory.close()

    def prune(self, *, dry_run: bool = False) -> dict[str, Any]:
        asked = PruneCheckpoints(JOB, 1, dry_run=dry_run)
        found: dict[str, Any] = self.ask(lambda to, stream: to.prune(asked, stream))
        found["removed"] = [row["step"] for row in found["removed"]]
        return found

    def steps(self, node: NodeId) -> list[int]:
        return [one.manifest.step for one in self.stores[node].stored(JOB)]


def test_a_node_that_is_away_is_named_as_one_that_was_not_asked(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, here=NODES[:2])
    silent = {AWAY: "it is away"}
    listed = cluster.ask(lambda to, stream: to.show(ListCheckpoints(JOB), stream))
    assert listed["silent"] == silent
    cluster.ask(lambda to, stream: to.verify(VerifyCheckpoints(JOB), stream))
    assert cluster.frames[0]["silent"] == silent
    assert all(frame["ok"] for frame in cluster.frames[1:]), "what is away is no damage"
    assert cluster.prune(dry_run=True)["silent"] == silent


@pytest.mark.parametrize("way", ["away", "refuses"])
def test_what_may_stay_on_a_silent_node_is_not_called_removed(tmp_path: Path, way: str) -> None:
    cluster = Cluster(tmp_path)
    if way == "away":
        cluster.here, why = NODES[:2], "it is away"
    else:
        cluster.refuses, why = (AWAY,), "its disk refuses"
    told = cluster.prune()
    assert told["removed"] == [] and told["silent"] == {AWAY: why}
    assert told["failures"] == [f"step 10 may stay on {AWAY} ({why}): prune again once it answers"]
    assert [cluster.steps(node) for node in NODES] == [[20], [20], [10, 20]]

    cluster.here, cluster.refuses = NODES, ()
    told = cluster.prune()
    assert told["removed"] == [10] and told["failures"] == [] and told["silent"] == {}
    assert cluster.steps(AWAY) == [20]


def test_a_node_that_is_gone_for_good_is_not_waited_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, here=NODES[:2], known=NODES[:2])
    told = cluster.prune()
    assert told["removed"] == [10] and told["failures"] == [] and told["silent"] == {}
