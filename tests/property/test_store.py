"""Any sequence of calls on a store, and of damage beneath it, compared with a dictionary."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticd.checkpoints import layout
from elasticd.checkpoints.disk import Head, LocalDisk
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.peer import Call, PeerStore, answer
from elasticd.checkpoints.port import Store
from elasticd.checkpoints.questions import Question, WantShard
from elasticd.checkpoints.sequential import Chunk
from elasticd.checkpoints.store import LocalStore
from elasticd.errors import StateError
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

ME, PEER = NodeId("me"), NodeId("peer")
COUNT = 2
Key = tuple[JobId, int, Stamp]
JOBS = [JobId("one"), JobId("two")]
# Two states of step 10: a partition, or a restore, may lead to both.
POINTS = [(0, Stamp("aa" * 16)), (10, Stamp("bb" * 16)), (10, Stamp("cc" * 16)), (20, Stamp("dd"))]
KEYS: list[Key] = [(job, *point) for job in JOBS for point in POINTS]
keys = st.sampled_from(KEYS)
indices = st.integers(0, COUNT - 1)


class FastDisk(LocalDisk):
    """Without waiting for a drive: durability is tested elsewhere."""

    def write(self, path: Path, chunks: Iterable[Chunk], head: Head | None = None) -> None:
        data = b"".join(bytes(chunk) for chunk in chunks)
        first = b"" if head is None else head()
        path.write_bytes(first + data[len(first) :])

    def order_folder(self, folder: Path) -> None:
        assert folder.is_dir()

    def sync_folder(self, folder: Path) -> None:
        assert folder.is_dir()


def content(key: Key, index: int) -> bytes:
    return f"{key} {index}".encode()


def shard_of(key: Key, index: int) -> Shard:
    data = content(key, index)
    return Shard(index, len(data), hashlib.blake2b(data, digest_size=32).hexdigest())


def manifest_of(key: Key, mine: frozenset[int]) -> Manifest:
    job, step, stamp = key
    shards = tuple(shard_of(key, index) for index in range(COUNT))
    holders = tuple((ME, PEER) if index in mine else (PEER,) for index in range(COUNT))
    return Manifest(
        *(job, Lineage("line"), None, step, stamp, NO_TAG, step * 64, 8, COUNT),
        *(shards, holders, "00", 0.0),
    )


@dataclass
class Model:
    """One checkpoint: its files as ``good``, ``rotten`` (right size) or ``short``; its manifest
    once it is final."""

    files: dict[int, str] = field(default_factory=dict)
    manifest: Manifest | None = None
    changed: int = 0
    """When a shard or the manifest came last."""

    def present(self) -> tuple[int, ...]:
        return tuple(sorted(index for index, state in self.files.items() if state != "short"))

    def missing(self) -> set[int]:
        mine = () if self.manifest is None else self.manifest.held_by(ME)
        short = {index for index, state in self.files.items() if state == "short"}
        return short | (set(mine) - set(self.files))


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="elasticd-store-"))
        self.store = LocalStore(self.root, ME, disk=FastDisk())
        self.model: dict[Key, Model] = {}
        self.clock = 0

    @property
    def reader(self) -> Store:
        """The store as it is read and removed from."""
        return self.store

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @rule(key=keys, index=indices)
    def put(self, key: Key, index: int) -> None:
        data = content(key, index)
        wanted = shard_of(key, index)
        assert (
            self.store.put_shard(*key, index, COUNT, [data[:3], data[3:]], wanted.digest) == wanted
        )
        self.model.setdefault(key, Model()).files[index] = "good"
        self.touch(key)

    @rule(key=keys, index=indices)
    def put_rotten(self, key: Key, index: int) -> None:
        try:
            self.store.put_shard(*key, index, COUNT, [b"rotten"], shard_of(key, index).digest)
        except StateError:
            # Its folder may be there now, which counts for nothing but a sweep.
            self.model.setdefault(key, Model())
            self.touch(key)
        else:
            raise AssertionError("a shard with a wrong digest was stored")

    @rule(key=keys, mine=st.frozensets(indices))
    def commit(self, key: Key, mine: frozenset[int]) -> None:
        new = manifest_of(key, mine)
        model = self.model.setdefault(key, Model())
        if mine <= set(model.present()):
            self.store.commit(new)
            kept = set(model.present())
            if model.manifest is None:
                # What the manifest doesn't count of this node's is a copy only if it is right.
                kept -= {i for i, state in model.files.items() if state == "rotten"} - mine
            model.manifest = new
            model.files = {index: model.files[index] for index in sorted(kept)}
        else:
            try:
                self.store.commit(new)
            except StateError:
                pass
            else:
                raise AssertionError("committed without a shard that this node is to hold")
        self.touch(key)

    def touch(self, key: Key) -> None:
        """File systems have coarse clocks; here each change has a time of its own."""
        self.clock, (job, step, stamp) = self.clock + 1, key
        final = self.root / job / layout.final_name(step, stamp) / layout.MANIFEST_NAME
        changed = final if final.exists() else self.root / job / layout.partial_name(step, stamp)
        os.utime(changed, ns=(self.clock, self.clock))
        self.model[key].changed = self.clock

    @rule(key=keys)
    def remove(self, key: Key) -> None:
        self.reader.remove(*key)
        self.model.pop(key, None)

    @precondition(lambda self: any(model.files for model in self.model.values()))
    @rule(data=st.data(), damage=st.sampled_from(["rotten", "short", "gone"]))
    def spoil(self, data: st.DataObject, damage: str) -> None:
        there = [(k, i) for k, model in self.model.items() for i in sorted(model.files)]
        key, index = data.draw(st.sampled_from(there))
        path = self.path(key, index)
        if damage == "gone":
            path.unlink()
            del self.model[key].files[index]
            self.touch(key)
            return
        good = content(key, index)
        path.write_bytes(b"?" + good[1:] if damage == "rotten" else good[:-1])
        self.model[key].files[index] = damage

    @rule()
    def sweep(self) -> None:
        swept = self.store.sweep()
        for key in [key for key, model in self.model.items() if model.manifest is None]:
            finals = [
                model
                for (job, step, _), model in self.model.items()
                if job == key[0] and step >= key[1] and model.manifest
            ]
            if any(final.changed > self.model[key].changed for final in finals):
                del self.model[key]
        expected = {
            self.path(key, index)
            for key, model in self.model.items()
            for index in (model.missing() if model.manifest else ())
        }
        assert {problem.path for problem in swept.problems} == expected

    @rule()
    def start_again(self) -> None:
        self.store = LocalStore(self.root, ME, disk=FastDisk())

    @invariant()
    def lists_agree(self) -> None:
        for job in JOBS:
            final = [
                (key, model)
                for key, model in sorted(self.model.items())
                if key[0] == job and model.manifest is not None
            ]
            stored = [Stored(m.manifest, m.present()) for _, m in final if m.manifest]
            assert self.reader.stored(job) == stored
            whole = [m.manifest for _, m in final if not m.missing()]
            assert self.store.manifests(job) == whole

    @invariant()
    def shards_agree(self) -> None:
        for key, model in self.model.items():
            if model.manifest is None:
                # Without a manifest there is no size to compare with.
                assert self.reader.held(*key, COUNT) == tuple(sorted(model.files))
                continue
            assert self.reader.held(*key) == model.present()
            rotten = {index for index, state in model.files.items() if state == "rotten"}
            problems = {problem.shard for problem in self.reader.verify(*key)}
            assert problems == rotten | model.missing()
            for index in set(model.present()) - rotten:
                with self.reader.open_shard(*key, index, COUNT) as file:
                    assert file.read() == content(key, index)

    def path(self, key: Key, index: int) -> Path:
        job, step, stamp = key
        final = self.model[key].manifest is not None
        folder = (layout.final_name if final else layout.partial_name)(step, stamp)
        return self.root / job / folder / layout.shard_name(index, COUNT)


class PeerMachine(StoreMachine):
    """The same store as another node sees it."""

    @property
    def reader(self) -> Store:
        return PeerStore(ME, serving(self.store))


def serving(store: Store) -> Call:
    """Answers as a daemon does, without a network."""

    def call(wanted: Question | WantShard, sink: int) -> int:
        if isinstance(wanted, WantShard):
            w = wanted
            with store.open_shard(w.job, w.step, w.stamp, w.index, w.count) as file:
                return os.write(sink, file.read())
        return os.write(sink, answer(store, wanted))

    return call


StoreMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, derandomize=True)
PeerMachine.TestCase.settings = settings(StoreMachine.TestCase.settings, max_examples=15)
TestStore = StoreMachine.TestCase
TestPeerStore = PeerMachine.TestCase
