"""Nodes come, go for good and are drained at random: checkpoints of jobs at rest stay on enough."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.checkpoints.manifest import Manifest
from elasticd.checkpoints.summary import Row, rows
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.node import Node
from elasticd.core.words.bulk import WANTS
from elasticd.core.words.records import JobRecord, JobState
from elasticd.errors import OperationError
from elasticd.shell.children.children import Children
from elasticd.shell.children.server import ChildServer
from elasticd.shell.control.resting import RestingJobs
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId
from tests.unit.shell.storage.storednode import COUNT, SIZE, SPEC, content, manifest_of

JOBS = 3
MOST_NODES = 5


def record_of(number: int, state: JobState = "queued") -> JobRecord:
    spec = {**SPEC, "checkpoint": {"replicas": 2 + number % 2}}
    return JobRecord(JobId(f"job-{number}"), number, spec, "archive", state)


@dataclass
class Machine:
    states: States
    scrubber: Scrubber
    resting: RestingJobs


@dataclass
class Cluster:
    """Nodes with checkpoints on disks of their own."""

    home: Path
    machines: dict[NodeId, Machine] = field(default_factory=dict)
    records: dict[JobId, JobRecord] = field(default_factory=dict)
    drained: set[NodeId] = field(default_factory=set)
    stores: set[NodeId] = field(default_factory=set)
    witnesses: set[NodeId] = field(default_factory=set)
    born: int = 0
    asked: int = 0
    """For anything."""
    away: set[NodeId] = field(default_factory=set)
    """Who is in the view, and doesn't answer."""

    def comes(self, quota_bytes: int = 0) -> NodeId:
        """A node with an empty disk."""
        self.born += 1
        me = NodeId(f"node-{self.born}")

        async def fetch(address: str, request: dict[str, Any], sink: int) -> int:
            self.asked += 1
            wanted = cast(Any, WANTS.decode(request))
            if address not in self.machines or address in self.away:
                raise OperationError(f"{address} is away")
            return _copied(await self.machines[NodeId(address)].states.serve(wanted), sink)

        def others() -> list[NodeId]:
            return [node for node in self.machines if node != me]

        near = Neighbours(me, fetch, str, others)
        home, server = self.home / me, cast(ChildServer, None)  # no trainer is asked here
        children = Children(home, "127.0.0.1", server, self._record, lambda event: None)
        states = States(home, near, children, self._record, lambda event: None, lambda *told: None)
        scrubber = Scrubber(states, others, quota_bytes)
        node = cast(Node, _Known(self, others))
        self.machines[me] = Machine(states, scrubber, RestingJobs(node, states, scrubber))
        return me

    def _record(self, job: JobId) -> JobRecord:
        return self.records[job]

    def standing(self) -> NodeDuties:
        return NodeDuties(*map(frozenset, (self.stores, self.witnesses, self.drained)))

    def lasting(self) -> set[NodeId]:
        able = set(self.machines) - self.witnesses
        return able - self.drained or able

    def has(self, record: JobRecord, *nodes: NodeId, steps: tuple[int, ...] = (5, 10)) -> None:
        """What these stored as it trained."""
        self.records[record.id] = record
        for step in steps:
            made = self.made(record, step, *nodes)
            for node in nodes:
                store = self.machines[node].states.store
                for shard in made.shards:
                    data, name = [content(step, shard.index)], (step, made.stamp, shard.index)
                    store.put_shard(record.id, *name, COUNT, data, shard.digest)
                store.commit(made)

    def made(self, record: JobRecord, step: int, *nodes: NodeId) -> Manifest:
        return replace(manifest_of(step), job=record.id, holders=(nodes,) * COUNT)

    def newest(self, record: JobRecord) -> Row:
        stored = {n: m.states.store.stored(record.id) for n, m in self.machines.items()}
        return max(rows(stored), key=lambda row: row.manifest.step)

    async def looks(self, times: int = 2) -> None:
        for _ in range(times):
            for machine in [*self.machines.values()]:
                await machine.resting.look()

    def lacking(self) -> list[str]:
        """What is on too few of the nodes that count, though it is there."""
        lasting, found = self.lasting(), []
        for record in self.records.values():
            row = self.newest(record)
            wanted = min(record.spec["checkpoint"]["replicas"], len(lasting))
            if min(len(lasting.intersection(nodes)) for nodes in row.present) < wanted:
                found.append(f"{record.id}, step {row.manifest.step}: {row.present} of {lasting}")
        return found


def _copied(fd: int, sink: int) -> int:
    with open(fd, "rb") as file, open(sink, "wb", closefd=False) as out:
        file.seek(0)
        return out.write(file.read())


class _Known:
    """What a node knows of the cluster."""

    def __init__(self, cluster: Cluster, others: Callable[[], list[NodeId]]) -> None:
        self._cluster, self._others = cluster, others
        self.tables = SimpleNamespace(nodes=SimpleNamespace(standing=cluster.standing))

    @property
    def records(self) -> dict[JobId, JobRecord]:
        return self._cluster.records

    @property
    def views(self) -> Any:
        return SimpleNamespace(view=SimpleNamespace(members=tuple(self._cluster.machines)))

    @property
    def liveness(self) -> Any:
        return SimpleNamespace(peers={n: SimpleNamespace(boot="run 1") for n in self._others()})


@pytest.mark.parametrize("seed", range(25))
def test_the_newest_is_on_as_many_nodes_as_it_is_to_be_on(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)

    async def story() -> None:
        cluster = Cluster(tmp_path)
        for _ in range(3):
            cluster.comes()
        for number in range(JOBS):
            record = replace(record_of(number), state=dice.choice(("queued", "finished", "failed")))
            cluster.has(record, *dice.sample([*cluster.machines], 1))
        for _ in range(6):
            await cluster.looks()
            assert cluster.lacking() == []
            nodes = [*cluster.machines]
            match dice.choice(["comes", "goes", "drained"]):
                case "comes" if len(nodes) < MOST_NODES:
                    cluster.comes()
                case "goes" if len(cluster.lasting()) > 2:
                    del cluster.machines[dice.choice(sorted(cluster.lasting()))]
                case _:
                    cluster.drained ^= {dice.choice(nodes)}
        await cluster.looks()
        before = cluster.asked
        await cluster.looks()
        assert cluster.asked == before, "in quiet nobody is asked again"
        for record in cluster.records.values():
            for node in cluster.newest(record).holders:
                assert cluster.machines[node].states.store.verify(record.id, 10, STAMP) == []

    asyncio.run(story())


STAMP = manifest_of(10).stamp


def test_no_more_nodes_have_it_than_are_to_and_stores_come_first(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        at, _, store, witness = (cluster.comes() for _ in range(4))
        cluster.stores, cluster.witnesses = {store}, {witness}
        cluster.has(record_of(0, "finished"), at)
        await cluster.looks()
        row = cluster.newest(cluster.records[JobId("job-0")])
        assert row.present == ((at, store),) * COUNT
        assert row.manifest.holders == ((at, store),) * COUNT, "so it is repaired there, too"

    asyncio.run(story())


def test_one_that_trains_has_a_leader_and_one_that_is_forgotten_goes(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        at, other = cluster.comes(), cluster.comes()
        cluster.has(record_of(0, "running"), at)
        cluster.has(replace(record_of(1, "finished"), forgotten=True), at)
        await cluster.looks()
        assert not cluster.machines[other].states.store.jobs()
        cluster.records[JobId("job-0")] = replace(record_of(0), turn=1)
        await cluster.looks(1)
        assert cluster.lacking()[0].startswith("job-1") and len(cluster.lacking()) == 1

    asyncio.run(story())


def test_a_store_with_a_quota_takes_no_more_than_that(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        at, other = cluster.comes(), cluster.comes(quota_bytes=SIZE - 1)
        cluster.has(record_of(0), at)
        await cluster.looks()
        assert not cluster.machines[other].states.store.jobs()
        cluster.machines[other].scrubber.keep_within(SIZE)
        cluster.comes()
        await cluster.looks()
        assert cluster.lacking() == []

    asyncio.run(story())


def test_one_that_can_not_be_had_is_tried_again_less_and_less_often(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        at, other = cluster.comes(), cluster.comes()
        record = record_of(0)
        cluster.has(record, at)
        rotten = cluster.machines[at].states.store.final_path(record.id, 10, STAMP, 1, COUNT)
        rotten.write_bytes(bytes(len(content(10, 1))))
        looks = []
        for _ in range(20):
            asked = cluster.asked
            await cluster.looks(1)
            looks.append(cluster.asked > asked)
        assert not cluster.machines[other].states.store.stored(record.id)
        assert [n for n, asked in enumerate(looks) if asked] == [1, 3, 6, 11]

    asyncio.run(story())


def test_what_a_node_has_that_does_not_answer_is_looked_for_again(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        at, other = cluster.comes(), cluster.comes()
        record = record_of(0, "finished")
        cluster.has(record, at, steps=(5, 10))
        cluster.has(record, other, steps=(5,))
        cluster.away = {at}
        await cluster.looks(3)
        cluster.away = set()
        await cluster.looks(3)
        assert cluster.lacking() == []

    asyncio.run(story())


def test_what_no_node_has_whole_is_not_copied_but_the_one_before(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        at, other = cluster.comes(), cluster.comes()
        record = record_of(0)
        cluster.has(record, at)
        cluster.machines[at].states.store.final_path(record.id, 10, STAMP, 0, COUNT).unlink()
        await cluster.looks()
        kept = cluster.machines[other].states.store.manifests(record.id)
        assert [manifest.step for manifest in kept] == [5]

    asyncio.run(story())
