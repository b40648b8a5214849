"""Nodes come, go for good, lead and are drained at random: a job's files stay on enough of them."""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd import archive
from elasticd.core.context import Station
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.node import Node
from elasticd.core.words.bulk import KeepArchive, WantArchive, WantArchiveList
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.shell.control.jobfiles import JobFiles
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.archives import Archives
from elasticd.types import JobId, NodeId

JOBS = 3
MOST_NODES = 5


def record_of(number: int, data: bytes) -> JobRecord:
    spec = {
        "job": {"name": "job", "entrypoint": "train.py"},
        "batch": {"global": 8, "micro": 1},
        "train": {"steps": 1},
        "checkpoint": {"replicas": 2 + number},
    }
    return JobRecord(JobId(f"job-{number}"), number, spec, archive.digest(data), "queued")


@dataclass
class Cluster:
    """Nodes with archives on disks of their own. ``leader`` is one of them."""

    home: Path
    nodes: dict[NodeId, JobFiles] = field(default_factory=dict)
    live: dict[JobId, JobRecord] = field(default_factory=dict)
    drained: set[NodeId] = field(default_factory=set)
    stores: set[NodeId] = field(default_factory=set)
    witnesses: set[NodeId] = field(default_factory=set)
    leader: NodeId | None = None
    born: int = 0
    asked: int = 0
    """For an archive, or to keep one."""
    runs: dict[NodeId, int] = field(default_factory=dict)
    """How often the daemon of each was started again."""
    full: set[NodeId] = field(default_factory=set)
    """Whose disk refuses."""
    silent: set[NodeId] = field(default_factory=set)
    """Whom nobody but the leader reaches."""

    def comes(self) -> NodeId:
        """A node with an empty disk."""
        self.born += 1
        me = NodeId(f"node-{self.born}")

        async def fetch(
            node: NodeId, wanted: Any, sink: int, limit_bytes: int | None = None
        ) -> int:
            if node not in self.nodes:
                raise OperationError(f"{node} is not connected")
            if node in self.silent and me != self.leader:
                raise OperationError(f"{node} is not heard")
            if isinstance(wanted, KeepArchive) and node in self.full:
                self.asked += 1
                raise OperationError("its disk is full")
            return await self.answer(self.nodes[node].archives, wanted, sink)

        def others() -> list[NodeId]:
            return [node for node in self.nodes if node != me]

        near = cast(Neighbours, SimpleNamespace(me=me, fetch=fetch, connected=others))
        archives = Archives(self.home / me, near, lambda job: self.home / job, lambda event: None)
        cluster = self

        class Liveness:
            @property
            def peers(self) -> Any:
                there = {node: cluster.runs.get(node, 0) for node in others()}
                return {node: SimpleNamespace(boot=f"run {run}") for node, run in there.items()}

        class Views:
            @property
            def view(self) -> Any:
                return SimpleNamespace(members=tuple(cluster.nodes))

            @property
            def leading(self) -> bool:
                return cluster.leader == me

        node = SimpleNamespace(
            views=Views(),
            liveness=Liveness(),
            ctx=SimpleNamespace(
                station=Station(role="witness" if me in self.witnesses else "train")
            ),
            tables=SimpleNamespace(
                jobs=SimpleNamespace(live=self.live), nodes=SimpleNamespace(standing=self.standing)
            ),
        )
        self.nodes[me] = JobFiles(cast(Node, node), archives, me)
        return me

    def replaced(self, node: NodeId) -> None:
        """By a machine with an empty disk and the same name."""
        for kept in (self.home / node).iterdir():
            kept.unlink()
        self.restarted(node)

    def restarted(self, node: NodeId) -> None:
        self.runs[node] = self.runs.get(node, 0) + 1

    def standing(self) -> NodeDuties:
        sets = (frozenset(each) for each in (self.stores, self.witnesses, self.drained))
        return NodeDuties(*sets)

    async def answer(self, archives: Archives, wanted: Any, sink: int) -> int:
        if isinstance(wanted, WantArchiveList):
            return os.write(sink, "\n".join(await archives.names()).encode())
        self.asked += 1
        if isinstance(wanted, KeepArchive):
            await archives.keep_copy(wanted.digest, wanted.source)
            return 0
        assert isinstance(wanted, WantArchive)
        return _copied(archives, wanted.digest, sink)

    async def looks(self, times: int = 2) -> None:
        for _ in range(times):
            for files in self.nodes.values():
                await files.look()

    def holders(self, record: JobRecord) -> set[NodeId]:
        return {node for node in self.nodes if _has(self.home / node, record.archive)}

    def lasting(self) -> set[NodeId]:
        return set(self.nodes) - self.drained or set(self.nodes)

    def lacking(self) -> list[str]:
        """What is on too few of the nodes that count."""
        lasting = self.lasting()
        found = []
        for record in self.live.values():
            held = self.holders(record)
            wanted = min(record.spec["checkpoint"]["replicas"], len(lasting))
            if len(held & lasting) < wanted:
                found.append(f"{record.id} is on {sorted(held)} of {sorted(lasting)}")
        return found


def _copied(archives: Archives, digest: str, sink: int) -> int:
    try:
        fd = archives.open(digest)
    except OSError as error:
        raise OperationError(str(error)) from None
    with open(fd, "rb") as file, open(sink, "wb", closefd=False) as out:
        return out.write(file.read())


def _has(folder: Path, digest: str) -> bool:
    return (folder / f"{digest}.tar").exists()


async def _submitted(cluster: Cluster, dice: random.Random) -> None:
    for number in range(JOBS):
        data = b"the folder of job %d" % number
        record = record_of(number, data)
        node = dice.choice([*cluster.nodes])
        await cluster.nodes[node].archives.keep(data, record.archive)
        assert await cluster.nodes[node].spread(record) == ""
        cluster.live[record.id] = record


@pytest.mark.parametrize("seed", range(40))
def test_in_quiet_it_is_on_as_many_nodes_as_it_wants(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)

    async def story() -> None:
        cluster = Cluster(tmp_path)
        for _ in range(3):
            cluster.leader = cluster.comes()
        await _submitted(cluster, dice)
        for _ in range(6):
            nodes = [*cluster.nodes]
            match dice.choice(["comes", "goes", "drained", "leads"]):
                case "comes" if len(nodes) < MOST_NODES:
                    cluster.comes()
                case "goes" if len(nodes) > 1:
                    del cluster.nodes[dice.choice(nodes)]
                case "drained":
                    cluster.drained ^= {dice.choice(nodes)}
                case _:
                    cluster.leader = dice.choice(nodes)
            if cluster.leader not in cluster.nodes:
                cluster.leader = dice.choice([*cluster.nodes])
            held = {job: cluster.holders(record) for job, record in cluster.live.items()}
            await cluster.looks()
            assert cluster.lacking() == []
            for job, record in cluster.live.items():
                new, lasting = cluster.holders(record) - held[job], cluster.lasting()
                assert new <= lasting, f"{job} was copied to one that is drained"
                wanted = min(record.spec["checkpoint"]["replicas"], len(lasting))
                assert len(new) == max(0, wanted - len(held[job] & lasting)), f"{job}: {new}"
        before = cluster.asked
        await cluster.looks()
        assert cluster.asked == before, "in quiet nobody is asked again"

    asyncio.run(story())


def test_a_store_has_the_files_first_and_a_witness_only_those_submitted_there(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        cluster.stores, cluster.witnesses = {NodeId("node-4")}, {NodeId("node-1")}
        witness, at, other, store = [cluster.comes() for _ in range(4)]
        cluster.leader = witness
        data = b"the folder of a job"
        record = record_of(0, data)
        await cluster.nodes[at].archives.keep(data, record.archive)
        assert await cluster.nodes[at].spread(record) == ""
        assert cluster.holders(record) == {at, store}
        cluster.live[record.id] = record
        for gone in (at, store):
            cluster.nodes.pop(gone)
        cluster.comes()
        await cluster.looks()
        assert cluster.holders(record) == set(), "nobody has it, and the witness takes none"
        there = b"the folder of another"
        second = record_of(0, there)
        await cluster.nodes[witness].archives.keep(there, second.archive)
        assert await cluster.nodes[witness].spread(second) == ""
        assert cluster.holders(second) == {witness, other, NodeId("node-5")}

    asyncio.run(story())


def test_a_node_that_is_away_for_a_moment_costs_no_copy(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        for _ in range(4):
            cluster.leader = cluster.comes()
        await _submitted(cluster, random.Random(0))
        await cluster.looks()
        before, gone = cluster.asked, NodeId("node-2")
        kept = cluster.nodes.pop(gone)
        await cluster.looks(1)
        cluster.nodes[gone] = kept
        await cluster.looks()
        assert cluster.asked == before

    asyncio.run(story())


@pytest.mark.parametrize("looks", [0, 1])
def test_who_comes_back_with_an_empty_disk_is_given_the_files_again(
    tmp_path: Path, looks: int
) -> None:
    """Also where no look has seen that the node was away."""

    async def story() -> None:
        cluster = Cluster(tmp_path)
        cluster.leader, other = cluster.comes(), cluster.comes()
        await _submitted(cluster, random.Random(0))
        await cluster.looks()
        kept = cluster.nodes.pop(other)
        await cluster.looks(looks)
        cluster.nodes[other] = kept
        cluster.replaced(other)
        await cluster.looks()
        assert cluster.lacking() == []

    asyncio.run(story())


def test_a_daemon_that_was_only_started_again_costs_no_copy(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        for _ in range(4):
            cluster.leader = cluster.comes()
        await _submitted(cluster, random.Random(0))
        await cluster.looks()
        before = cluster.asked
        for node in cluster.nodes:
            cluster.restarted(node)
        await cluster.looks()
        assert cluster.asked == before

    asyncio.run(story())


def test_a_leader_that_knows_of_no_copy_makes_none_where_there_are_enough(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        for _ in range(5):
            cluster.comes()
        await _submitted(cluster, random.Random(1))
        before = {job: cluster.holders(record) for job, record in cluster.live.items()}
        asked = cluster.asked
        for leader in cluster.nodes:
            cluster.leader = leader
            await cluster.looks()
        assert {job: cluster.holders(record) for job, record in cluster.live.items()} == before
        assert cluster.asked == asked

    asyncio.run(story())


def test_a_drained_leader_copies_what_others_can_not_fetch_themselves(tmp_path: Path) -> None:
    async def story(silent: bool) -> set[NodeId]:
        cluster = Cluster(tmp_path / str(silent))
        has, lacks, cluster.leader = (cluster.comes() for _ in range(3))
        data = b"a folder"
        record = cluster.live[JobId("job-0")] = record_of(0, data)
        await cluster.nodes[has].archives.keep(data, record.archive)
        cluster.drained = {cluster.leader}
        cluster.silent = {has} if silent else set()
        await cluster.looks()
        assert cluster.lacking() == []
        return cluster.holders(record) - {has, lacks}

    assert asyncio.run(story(silent=False)) == set()
    assert asyncio.run(story(silent=True)) == {NodeId("node-3")}


@pytest.mark.parametrize("again", [False, True], ids=["the same daemon", "started again"])
def test_what_stays_short_is_tried_less_and_less_often(tmp_path: Path, again: bool) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        cluster.leader, other = cluster.comes(), cluster.comes()
        cluster.full = {other}
        data = b"a folder"
        record = cluster.live[JobId("job-0")] = record_of(0, data)
        await cluster.nodes[cluster.leader].archives.keep(data, record.archive)
        await cluster.looks(100)
        assert 5 <= cluster.asked <= 8
        cluster.full.clear()
        if again:
            cluster.restarted(other)
        await cluster.looks(2 if again else 40)
        assert cluster.lacking() == []

    asyncio.run(story())


def test_a_record_that_nobody_here_can_read_stops_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = Cluster(tmp_path)
        cluster.leader = cluster.comes()
        cluster.comes()
        data = b"a folder"
        strange = replace(record_of(1, b""), spec={"batch": {"newer": 1}})
        cluster.live.update({strange.id: strange, JobId("job-0"): record_of(0, data)})
        archives = cluster.nodes[cluster.leader].archives
        await archives.keep(data, archive.digest(data))
        await cluster.looks()
        assert len(cluster.holders(cluster.live[JobId("job-0")])) == 2

    asyncio.run(story())
