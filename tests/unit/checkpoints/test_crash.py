"""Kills, power cuts and refusing disks at every single write: what was consistent stays so."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import mlx.core as mx
import pytest

from elasticd.checkpoints import choose, summary
from elasticd.checkpoints.codec import model_digest, read_tensors, write_shard
from elasticd.checkpoints.disk import Head
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.checkpoints.retention import KeepLast, prunable, superseded
from elasticd.checkpoints.sequential import Chunk, write_all
from elasticd.checkpoints.store import LocalStore
from elasticd.errors import StateError
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

JOB, ME = JobId("job-1"), NodeId("me")
CRASHES = int(os.environ.get("ELASTICD_TEST_CRASHES", "25"))
"""Of the last test; 500 and more take a minute: ELASTICD_TEST_CRASHES=500 make test
PYTEST_ARGS="-k crashes"."""


class Killed(BaseException):
    """The process is gone: nothing catches this."""


@dataclass
class Pending:
    """A change of a folder that the disk may still forget. Paths follow renames of folders
    above."""

    folder: Path
    names: list[Path]
    undo: Callable[[list[Path]], None]
    forgotten: bool = False


class Disk:
    """A real folder without real fsyncs, which stops at one operation and then can lose its power.

    Operation ``stop`` (from 0) fails with ``error``; :class:`Killed` does that to all after it too,
    and a file being written then is half there. :meth:`cut_power` undoes changes of folders that
    were not synced.
    """

    def __init__(
        self, spare: Path, stop: int = -1, error: type[BaseException] | int = Killed
    ) -> None:
        self.operations = 0
        self._spare, self._stop, self._error = spare, stop, error
        self._pending: list[Pending] = []
        self._serial = itertools.count()

    def write(self, path: Path, chunks: Iterable[Chunk], head: Head | None = None) -> None:
        existed = path.exists()
        data = b"".join(bytes(chunk) for chunk in chunks)
        if head is not None:
            first = head()
            data = first + data[len(first) :]
        with path.open("wb") as file:
            if not existed:
                self._remember(path.parent, [path], lambda names: names[0].unlink(missing_ok=True))
            stopped = self._stopped()
            write_all(file.fileno(), data[: len(data) // 2] if stopped else data)
            self._fail_if(stopped)

    def rename(self, old: Path, new: Path) -> None:
        self._fail_if(self._stopped())
        saved = self._save(new) if new.is_file() else None

        def undo(names: list[Path]) -> None:
            os.rename(names[1], names[0])
            if saved is not None:
                shutil.copy(saved, names[1])

        if old.is_dir():
            self._move(old, new)
        os.replace(old, new)
        self._remember(old.parent, [old, new], undo)

    def sync_folder(self, folder: Path) -> None:
        self._fail_if(self._stopped())
        self._pending = [pending for pending in self._pending if pending.folder != folder]

    def make_folder(self, folder: Path) -> None:
        self._fail_if(self._stopped())
        folder.mkdir()
        self._remember(folder.parent, [folder], lambda names: shutil.rmtree(names[0]))

    def remove_file(self, path: Path) -> None:
        self._fail_if(self._stopped())
        if path.exists():
            saved = self._save(path)
            path.unlink()
            self._remember(path.parent, [path], lambda names: _restore(saved, names[0]))

    def remove_folder(self, folder: Path) -> None:
        """Not in one go: a kill leaves half of it."""
        stopped = self._stopped()
        if folder.exists():
            files = sorted(folder.iterdir())
            for file in files[: len(files) // 2] if stopped else files:
                file.unlink()
            self._fail_if(stopped)
            folder.rmdir()
        self._fail_if(stopped)

    def cut_power(self, rng: random.Random | None) -> None:
        """Forget what wasn't synced: all of it or, with ``rng``, of each folder some of the
        latest."""
        for folder in sorted({pending.folder for pending in self._pending}):
            changes = [pending for pending in self._pending if pending.folder == folder]
            share = 1.0 if rng is None else rng.choice([0.0, 0.5, 1.0])
            for pending in changes[len(changes) - round(share * len(changes)) :]:
                pending.forgotten = True
        while self._pending:
            pending = self._pending.pop()
            if pending.forgotten:
                pending.undo(pending.names)
                if len(pending.names) == 2 and pending.names[0].is_dir():
                    self._move(pending.names[1], pending.names[0])

    def _stopped(self) -> bool:
        number, self.operations = self.operations, self.operations + 1
        return number == self._stop or (self._error is Killed and number > self._stop >= 0)

    def _fail_if(self, stopped: bool) -> None:
        if not stopped:
            return
        if isinstance(self._error, int):
            raise OSError(self._error, os.strerror(self._error))
        raise self._error

    def _save(self, path: Path) -> Path:
        return Path(shutil.copy(path, self._spare / str(next(self._serial))))

    def _remember(
        self, folder: Path, names: list[Path], undo: Callable[[list[Path]], None]
    ) -> None:
        self._pending.append(Pending(folder, names, undo))

    def _move(self, old: Path, new: Path) -> None:
        def moved(path: Path) -> Path:
            return new / path.relative_to(old) if path.is_relative_to(old) else path

        for pending in self._pending:
            if pending.folder.is_relative_to(old):
                pending.folder = moved(pending.folder)
                pending.names = [moved(path) for path in pending.names]


def _restore(saved: Path, path: Path) -> None:
    # A folder that was removed above is gone with all that was in it.
    if path.parent.is_dir():
        shutil.copy(saved, path)


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


@dataclass
class Site:
    """Three nodes that checkpoint one job, each on a disk that may stop at any operation; keeps
    what was announced as consistent."""

    folder: Path
    rng: random.Random
    disks: dict[NodeId, Disk] = field(default_factory=dict)
    announced: list[Manifest] = field(default_factory=list)
    lives: int = 0

    def __post_init__(self) -> None:
        self.keep = self.rng.choice([1, 2])

    def start(self, stops: dict[NodeId, int]) -> None:
        """All nodes start, sweep, and stop at their operation of ``stops`` (-1: never)."""
        self.lives += 1
        for node in NODES:
            spare = self.folder / f"spare-{node}-{self.lives}"
            spare.mkdir()
            (self.folder / node).mkdir(exist_ok=True)
            LocalStore(self.folder / node, node, disk=Disk(spare)).sweep()
            self.disks[node] = Disk(spare, stops[node])

    def store(self, node: NodeId) -> LocalStore:
        return LocalStore(self.folder / node, node, disk=self.disks[node])

    def manifest(self, step: int) -> Manifest:
        rows = [(i, content(step, i)) for i in range(len(NODES))]
        shards = tuple(Shard(i, len(data), digest_of(data)) for i, data in rows)
        holders = tuple(tuple(sorted({NODES[i], NODES[(i + 1) % 3]})) for i in range(3))
        return Manifest(
            *(JOB, Lineage("line"), None, step, stamp_of(step), NO_TAG, step * 64, 8, 3),
            *(shards, holders, "00", float(step)),
        )

    def train(self, first: int) -> None:
        """Checkpoints from step ``first`` on, one after the other, as trainers, leader and daemons
        make them, until a node stops."""
        for step in range(first, first + 6):
            made = self.manifest(step)
            for index, nodes in enumerate(made.holders):
                for node in nodes:
                    put(self.store(node), step, index, count=3)
            for node in self.rng.sample(NODES, 3):
                self.store(node).commit(made)
                if self.rng.random() < 0.3:
                    self.make_room(node)
            # Each shard is final on two nodes.
            self.announced.append(made)
            for node in self.rng.sample(NODES, 3):
                known = self.store(node).manifests(JOB)
                for old in prunable(known, [KeepLast(self.keep)], made.lineage):
                    self.store(node).remove(JOB, old.step, old.stamp)

    def make_room(self, node: NodeId) -> None:
        """As a node over its quota does, which hears at any time what the others have."""
        rows = summary.rows({each: self.store(each).stored(JOB) for each in NODES})
        for row in superseded(rows):
            if node in row.nodes:
                self.store(node).remove(JOB, row.manifest.step, row.manifest.stamp)

    def crash(self) -> None:
        """Every node is killed; some lose their power too."""
        for node in NODES:
            if self.rng.random() < 0.5:
                self.disks[node].cut_power(self.rng)

    def newest(self, nodes: list[NodeId]) -> choose.Choice | None:
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
        site = Site(tmp_path / f"{crashes}", rng)
        site.folder.mkdir()
        for _ in range(min(5, CRASHES - crashes)):
            stops = {node: rng.choice([-1, rng.randrange(150)]) for node in NODES}
            site.start(stops)
            before = site.newest(NODES)
            with contextlib.suppress(Killed):
                site.train(1 + (before.manifest.step if before is not None else 0))
            site.crash()
            crashes += 1
            wanted = site.announced[-1].step if site.announced else -1
            # All of them, and after the loss of any one for good.
            for nodes in (NODES, *([n for n in NODES if n != lost] for lost in NODES)):
                choice = site.newest(nodes)
                found = choice.manifest.step if choice is not None else -1
                assert found >= wanted, f"ELASTICD_TEST_SEED={seed}: {found} < {wanted}"
        shutil.rmtree(site.folder)
