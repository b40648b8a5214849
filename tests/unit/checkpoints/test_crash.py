"""Kills, power cuts and refusing disks at every single write: what was consistent stays so."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import assert_never

import mlx.core as mx
import pytest

from elasticd.checkpoints import choose, summary
from elasticd.checkpoints.announced import Announced
from elasticd.checkpoints.codec import model_digest, read_tensors, write_shard
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.checkpoints.retention import (
    overtaken,
    policies_of,
    removed_from,
    superseded,
    useless,
)
from elasticd.checkpoints.store import LocalStore
from elasticd.core.context import Context
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.words import effects as e
from elasticd.core.words.records import View, World
from elasticd.core.words.shards import Consistent, ManifestStore, ManifestStored, ShardsWritten
from elasticd.errors import StateError
from elasticd.settings.job import JobSpec
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp, Tag
from tests.unit.checkpoints.breaking import Disk, Killed

JOB, ME = JobId("job-1"), NodeId("me")
CRASHES = int(os.environ.get("ELASTICD_TEST_CRASHES", "25"))
"""Of the last test; 500 and more take a minute: ELASTICD_TEST_CRASHES=500 make test
PYTEST_ARGS="-k crashes"."""


def content(step: int, index: int) -> bytes:
    return bytes([step, index]) * 40


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def stamp_of(step: int) -> Stamp:
    return Stamp(f"{step:032x}"[::-1])


def manifest_of(step: int) -> Manifest:
    data = [content(step, index) for index in range(2)]
    shards = tuple(Shard(index, len(d), digest_of(d)) for index, d in enumerate(data))
    return Manifest(
        *(JOB, Lineage("line"), None, step, stamp_of(step), NO_TAG, step * 64, 8, 2),
        *(shards, ((ME,), (ME,)), "00", 0.0),
    )


def put(store: LocalStore, step: int, index: int, count: int = 2) -> None:
    data = content(step, index)
    store.put_shard(JOB, step, stamp_of(step), index, count, [data[:9], data[9:]], digest_of(data))


class Story:
    """Two checkpoints are made, a shard repaired, and the older removed; notes what has
    returned."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self.done: set[str] = set()
        self.begun: set[str] = set()

    def tell(self) -> None:
        for step in (10, 20):
            if not self._store.held(JOB, step, stamp_of(step)):
                put(self._store, step, 0, count=3)
            put(self._store, step, 0)
            put(self._store, step, 1)
            self._do(f"commit {step}", partial(self._store.commit, manifest_of(step)))
        put(self._store, 20, 1)
        self._store.commit(manifest_of(20))
        self._do("remove 10", partial(self._store.remove, JOB, 10, stamp_of(10)))
        self._store.sweep()

    def _do(self, name: str, action: partial[None]) -> None:
        self.begun.add(name)
        action()
        self.done.add(name)


def check(root: Path, story: Story) -> None:
    """What a new process finds after the crash, and that it can go on from there."""
    store = LocalStore(root, ME, disk=Disk(root))
    steps = {m.step for m in store.manifests(JOB)}
    assert steps == {item.manifest.step for item in store.stored(JOB)}
    for step in steps:
        assert f"commit {step}" in story.begun
        assert store.verify(JOB, step, stamp_of(step)) == []
    assert 20 in steps or "commit 20" not in story.done
    assert 10 in steps or "commit 10" not in story.done or "remove 10" in story.begun
    assert 10 not in steps or "remove 10" not in story.done
    assert store.sweep().problems == ()
    assert [path for path in root.rglob("*.tmp")] == []
    assert {m.step for m in store.manifests(JOB)} == steps
    Story(store).tell()
    assert store.manifests(JOB) == [manifest_of(20)]
    assert sorted(path.name for path in (root / JOB).iterdir()) == ["00000020-410000000000"]


def folders(tmp_path: Path, number: object) -> tuple[Path, Path]:
    root, spare = tmp_path / f"{number}", tmp_path / f"{number}-spare"
    root.mkdir()
    spare.mkdir()
    return root, spare


def operations(tmp_path: Path) -> int:
    root, spare = folders(tmp_path, "count")
    disk = Disk(spare)
    Story(LocalStore(root, ME, disk=disk)).tell()
    return disk.operations


def test_killed_at_every_operation(tmp_path: Path) -> None:
    total = operations(tmp_path)
    assert total > 40
    for stop in range(total):
        root, spare = folders(tmp_path, stop)
        story = Story(LocalStore(root, ME, disk=Disk(spare, stop)))
        with pytest.raises(Killed):
            story.tell()
        check(root, story)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_power_cut_at_every_operation(tmp_path: Path, seed: int | None) -> None:
    rng = None if seed is None else random.Random(seed)
    for stop in range(operations(tmp_path)):
        root, spare = folders(tmp_path, stop)
        disk = Disk(spare, stop)
        story = Story(LocalStore(root, ME, disk=disk))
        with pytest.raises(Killed):
            story.tell()
        disk.cut_power(rng)
        check(root, story)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_refused_at_every_operation(tmp_path: Path, code: int) -> None:
    for stop in range(operations(tmp_path)):
        root, spare = folders(tmp_path, stop)
        story = Story(LocalStore(root, ME, disk=Disk(spare, stop, code)))
        try:
            story.tell()
        except StateError as error:
            assert str(root) in str(error) and os.strerror(code) in str(error)
        check(root, story)


def test_a_full_disk_gets_no_more_and_more_folders(tmp_path: Path) -> None:
    """Of each checkpoint that it refuses nothing is left, not even the folder."""
    tensors, stop = {"a": mx.array([1.0, 2.0])}, 0
    for stop in itertools.count():
        root, spare = folders(tmp_path, stop)
        path = root / "00000005-aa.partial" / "shard"
        try:
            write_shard(path, tensors, {}, disk=Disk(spare, stop, errno.ENOSPC))
        except StateError:
            assert path.exists() or not path.parent.exists()
        else:
            break
    assert stop > 3


def test_a_shard_is_the_old_or_the_new_one_whenever_it_is_killed(tmp_path: Path) -> None:
    old, new = {"a": mx.array([1.0, 2.0])}, {"a": mx.array([3.0, 4.0])}
    for stop in itertools.count():
        root, spare = folders(tmp_path, stop)
        path = root / "shard"
        write_shard(path, old, {})
        disk = Disk(spare, stop)
        try:
            write_shard(path, new, {}, disk=disk)
        except Killed:
            if stop % 2:
                disk.cut_power(None)
            found = model_digest(read_tensors([path])[0])
            assert found in (model_digest(old), model_digest(new))
        else:
            disk.cut_power(None)
            assert model_digest(read_tensors([path])[0]) == model_digest(new)
            break
    assert stop == 3


NODES = [NodeId(f"node-{number}") for number in range(3)]
LINE = Lineage("line")


def world_of(generation: Tag, base: Manifest | None) -> World:
    """All nodes go on from a checkpoint, or begin."""
    nothing = ((),) * len(NODES)
    step, stamp = (base.step, base.stamp) if base is not None else (0, stamp_of(0))
    return World(
        job=JOB, generation=generation, epoch=generation, lineage=LINE, parent=None, step=step,
        stamp=stamp, members=tuple(NODES), sources=("checkpoint",) * 3, hosts=("",) * 3,
        shares_now=nothing, shares=nothing, rung="restore", reason="", recoveries=0, lost_steps=0,
        exact=True, checkpointed=-1, manifest=base, holders=(),
    )  # fmt: skip


Act = ShardsWritten | ManifestStore | Consistent


class Leader:
    """The one that production has: it says when a manifest is stored, and when older ones may
    go. ``due`` is what each node is to do yet, in the order in which it was told."""

    def __init__(
        self, life: int, keep: int, base: Manifest | None, stores: dict[NodeId, LocalStore]
    ) -> None:
        self.spec = JobSpec.from_dict(
            {
                "job": {"name": "job", "entrypoint": "train.py"},
                "batch": {"global": 8, "micro": 1},
                "train": {"steps": 10_000},
                "checkpoint": {"replicas": 2, "keep": keep},
            }
        )
        self.generation = Tag(life, NODES[0], f"{life}")
        view = View(self.generation, tuple(NODES))
        self._ctx = Context(NODES[0], lambda: "0000", now=50.0)
        self._made = Checkpoints(self._ctx, JOB, self.spec, view)
        self.announced: list[Manifest] = []
        self.due: dict[NodeId, list[Act]] = {node: [] for node in NODES}
        self._made.enter(world_of(self.generation, base))
        self._made.learn({node: tuple(store.stored(JOB)) for node, store in stores.items()})
        self._go_on()

    def write(self, step: int) -> None:
        """All come to that step."""
        for rank, node in enumerate(NODES):
            data = [(i, content(step, i)) for i in (rank, (rank - 1) % 3)]
            rows = tuple((i, len(each), digest_of(each)) for i, each in sorted(data))
            name = (JOB, self.generation, LINE, step, stamp_of(step), 3)
            self.due[node].append(ShardsWritten(*name, rows, "00", 0.1, 0.2))

    def wrote(self, node: NodeId, written: ShardsWritten) -> None:
        self._made.on_shards(node, written)
        self._go_on()

    def stored(self, node: NodeId, made: Manifest) -> None:
        name = (made.job, made.lineage, made.step, made.stamp, made.count)
        self._made.on_stored(node, ManifestStored(*name, True, ""))
        self._go_on()

    def _go_on(self) -> None:
        self._made.advance()
        sent = [(f.to, f.message) for f in self._ctx.effects if isinstance(f, e.Send)]
        for node, message in [*sent, *((NODES[0], each) for each in self._ctx.inbox)]:
            if isinstance(message, ManifestStore | Consistent):
                self.due[node].append(message)
            if isinstance(message, Consistent) and self._made.newest not in self.announced:
                assert self._made.newest is not None
                self.announced.append(self._made.newest)
        self._ctx.effects.clear()
        self._ctx.inbox.clear()


@dataclass
class Site:
    """Three nodes that checkpoint one job, each on a disk that may stop at any operation;
    the leader of production says in which order."""

    folder: Path
    seed: int
    rng: random.Random
    disks: dict[NodeId, Disk] = field(default_factory=dict)
    leaders: list[Leader] = field(default_factory=list)
    told: dict[NodeId, Announced] = field(default_factory=dict)
    lives: int = 0

    def __post_init__(self) -> None:
        self.keep = self.rng.choice([1, 2])

    @property
    def announced(self) -> int:
        """The newest step whose checkpoint was announced; -1: none."""
        return max((m.step for leader in self.leaders for m in leader.announced), default=-1)

    def start(self, stops: dict[NodeId, int]) -> None:
        """All nodes start, sweep, and stop at their operation of ``stops`` (-1: never)."""
        self.lives += 1
        for node in NODES:
            spare = self.folder / f"spare-{node}-{self.lives}"
            spare.mkdir()
            (self.folder / node).mkdir(exist_ok=True)
            LocalStore(self.folder / node, node, disk=Disk(spare)).sweep()
            self.disks[node] = Disk(spare, stops[node])
            self.told[node] = Announced()

    def store(self, node: NodeId) -> LocalStore:
        return LocalStore(self.folder / node, node, disk=self.disks[node])

    def train(self, base: Manifest | None) -> None:
        """Checkpoints from ``base`` on, as trainers, leader and daemons make them, until a node
        stops. Each node does what it is told in its own time."""
        stores = {node: self.store(node) for node in NODES}
        leader = Leader(self.lives, self.keep, base, stores)
        self.leaders.append(leader)
        first = 1 + (base.step if base is not None else 0)
        slow = self.rng.choice([None, *NODES])
        for step in range(first, first + 6):
            leader.write(step)
            left = self.rng.choice([0, 1, 3, 6])
            while sum(map(len, leader.due.values())) > left:
                ready = [node for node in NODES if leader.due[node]]
                quick = [node for node in ready if node != slow or self.rng.random() < 0.2]
                node = self.rng.choice(quick or ready)
                before = self.announced
                self.act(leader, node, leader.due[node].pop(0))
                if self.announced > before or (self.rng.random() < 0.1 and self.make_room(node)):
                    self.require(self.found_now)

    def act(self, leader: Leader, node: NodeId, act: Act) -> None:
        store = self.store(node)
        match act:
            case ShardsWritten():
                for index, _, _ in act.shards:
                    put(store, act.step, index, count=3)
                leader.wrote(node, act)
            case ManifestStore(_, made):
                self.told[node].store(made)
                store.commit(made)
                leader.stored(node, made)
            case Consistent(job, lineage, step):
                self.told[node].tell(job, step)
                policies = policies_of(leader.spec.checkpoint, {})
                for old in overtaken(store.manifests(job), policies, step, lineage):
                    store.remove(job, old.step, old.stamp)
            case _:
                assert_never(act)

    def make_room(self, node: NodeId) -> bool:
        """As a node over its quota does, which hears at any time what the others have. Whether
        anything was removed."""
        stored = {each: self.store(each).stored(JOB) for each in NODES}
        rows, announced = summary.rows(stored), self.told[node].newest(JOB)
        lost = useless(rows, stored, announced)
        spare = [row for row in superseded(rows, announced) if row not in lost]
        goes = [(row, row.nodes) for row in lost]
        goes += [(row, removed_from(row, node)) for row in spare]
        for row, nodes in goes[: self.rng.choice([1, len(goes)])]:
            for each in nodes:
                self.store(each).remove(JOB, row.manifest.step, row.manifest.stamp)
        return bool(goes)

    def require(self, find: Callable[[Sequence[NodeId]], choose.Choice | None]) -> None:
        """What was announced, or a newer one, is found on all nodes, and after the loss of any one
        for good."""
        for nodes in (NODES, *([n for n in NODES if n != lost] for lost in NODES)):
            choice = find(nodes)
            found = choice.manifest.step if choice is not None else -1
            wanted = self.announced
            assert found >= wanted, f"ELASTICD_TEST_SEED={self.seed}: {found} < {wanted} on {nodes}"

    def found_now(self, nodes: Sequence[NodeId]) -> choose.Choice | None:
        """Between two crashes; nothing is read for that."""
        return choose.newest({node: self.store(node).stored(JOB) for node in nodes})

    def crash(self) -> None:
        """Every node is killed; some lose their power too."""
        for node in NODES:
            if self.rng.random() < 0.5:
                self.disks[node].cut_power(self.rng)

    def newest(self, nodes: Sequence[NodeId]) -> choose.Choice | None:
        """What a restore would load from these nodes; every byte of it is verified."""
        plain = {node: LocalStore(self.folder / node, node) for node in nodes}
        choice = choose.newest({node: store.stored(JOB) for node, store in plain.items()})
        if choice is not None:
            made = choice.manifest
            for index, sources in enumerate(choice.sources):
                for node in sources:
                    assert plain[node].verify(JOB, made.step, made.stamp, index) == []
                    with plain[node].open_shard(JOB, made.step, made.stamp, index, 3) as file:
                        assert file.read() == content(made.step, index)
        return choice


def test_random_crashes_lose_no_consistent_checkpoint(tmp_path: Path) -> None:
    seed = int(os.environ.get("ELASTICD_TEST_SEED", "0")) or random.randrange(1 << 32)
    rng = random.Random(seed)
    crashes = 0
    while crashes < CRASHES:
        site = Site(tmp_path / f"{crashes}", seed, rng)
        site.folder.mkdir()
        for _ in range(min(5, CRASHES - crashes)):
            stops = {node: rng.choice([-1, rng.randrange(150)]) for node in NODES}
            site.start(stops)
            before = site.newest(NODES)
            with contextlib.suppress(Killed):
                site.train(before.manifest if before is not None else None)
            site.crash()
            crashes += 1
            site.require(site.newest)
        shutil.rmtree(site.folder)
