"""What ``checkpoints verify`` says beside a job that trains: a checkpoint comes, another goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.checkpoints import layout, summary
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.port import Problem
from elasticd.core.words.limits import PART_BYTES
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.checkpoints import OpenCheckpoint, VerifyCheckpoints
from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.shell.control import inventory
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.server import Stream
from elasticd.shell.storage.scratch import Scratch
from elasticd.shell.storage.states import States
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

WAIT = 20.0
JOB, ONE, TWO = JobId("job"), NodeId("one"), NodeId("two")
MANIFEST = Manifest(
    *(JOB, Lineage("line"), None, 10, Stamp("ab"), NO_TAG, 80, 8, 1),
    *((Shard(0, 4, "00" * 32),), ((ONE, TWO),), "00", 0.0),
)
SPEC = {
    "job": {"name": "job", "entrypoint": "train.py"},
    "batch": {"global": 8, "micro": 1},
    "train": {"steps": 100},
    "checkpoint": {"keep": 2},
}
WHOLE, EMPTY = Stored(MANIFEST, (0,)), Stored(MANIFEST, ())


@dataclass
class FakeStore:
    """Says at each look what ``looks`` has next, at last always the same."""

    looks: list[tuple[Stored, ...]]
    rotten: bool = False
    on_its_way: tuple[int, ...] = ()
    torn: list[str] = field(default_factory=list)

    def coming(self, *_: Any) -> tuple[int, ...]:
        return self.on_its_way

    def unreadable(self, job: JobId) -> list[str]:
        return self.torn

    def stored(self, job: JobId) -> tuple[Stored, ...]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def read(self) -> list[Problem]:
        return [Problem(Path("shard"), 0, "rotten")] if self.rotten else []


@dataclass
class Said:
    frames: list[dict[str, Any]] = field(default_factory=list)

    async def send(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, bool]]]:
    """(node, whether it is sound) of each replica, given the two nodes' stores."""
    monkeypatch.setattr(inventory, "_LOOK_SECONDS", 0.0)

    def run(one: FakeStore, two: FakeStore, *announced: int) -> list[tuple[str, bool]]:
        stores = {ONE: one, TWO: two}

        class FakeStates:
            store_of = staticmethod(stores.__getitem__)

        known = cast(JobRecord, SimpleNamespace(spec=SPEC))

        async def told(job: JobId, *kinds: str) -> list[dict[str, Any]]:
            begun = [{"kind": "job_submitted"}] if announced else []
            fields = {"kind": "checkpoint_committed", "generation": 0}
            return [*begun, *({**fields, "step": step} for step in announced)]

        async def read(node: NodeId, *_: Any) -> list[Problem]:
            return stores[node].read()

        states = cast(States, FakeStates())
        asked = Inventory(
            states, lambda: [ONE, TWO], tuple, lambda job: known, told, read, Scratch(Path())
        )
        said = Said()

        async def ask() -> None:
            async with asyncio.timeout(WAIT):
                await asked.verify(VerifyCheckpoints(JOB), cast(Stream, said))

        asyncio.run(ask())
        asked.close()
        torn = [(each["node"], False) for each in said.frames[0]["unreadable"]]
        return [*torn, *((frame["node"], frame["ok"]) for frame in said.frames[1:])]

    return run


def test_a_replica_that_fails_as_nobody_has_thought_of_leaves_nobody_waiting(
    verify: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FakeStore) -> list[Problem]:
        raise LookupError("planted")

    monkeypatch.setattr(FakeStore, "read", fail)
    with pytest.raises(LookupError, match="planted"):
        verify(FakeStore([(WHOLE,)]), FakeStore([(WHOLE,)]))


def test_one_that_was_just_being_made_is_sound(verify: Any) -> None:
    late = FakeStore([(), (), (WHOLE,)])
    assert verify(FakeStore([(WHOLE,)]), late) == [("one", True), ("two", True)]


def test_one_that_is_still_being_made_is_neither(verify: Any) -> None:
    assert verify(FakeStore([(WHOLE,)]), FakeStore([()], on_its_way=(0,))) == [("one", True)]


def test_one_that_was_removed_meanwhile_is_no_damage(verify: Any) -> None:
    gone = FakeStore([(WHOLE,), ()], rotten=True)
    assert verify(gone, FakeStore([(), ()])) == []
    assert verify(FakeStore([(WHOLE,), ()]), FakeStore([(), ()])) == [("one", True)]


@pytest.mark.parametrize("held", [(), (EMPTY,)], ids=["all of it", "the shard"])
def test_what_stays_away_is_damage(verify: Any, held: tuple[Stored, ...]) -> None:
    assert verify(FakeStore([(WHOLE,)]), FakeStore([held])) == [("one", True), ("two", False)]


def of_step(step: int) -> Stored:
    stamp = Stamp(f"{step:032x}")
    return Stored(replace(MANIFEST, step=step, stamp=stamp), (0,))


def test_what_retention_has_removed_on_one_node_is_no_damage(verify: Any) -> None:
    old, newer, newest = of_step(10), of_step(20), of_step(30)
    late = FakeStore([(old, newer, newest)])
    found = verify(late, FakeStore([(newer, newest)]))
    assert sorted(found) == [("one", True)] * 3 + [("two", True)] * 2
    assert ("two", False) in verify(late, FakeStore([(old, newest)])), "this one is to be kept"


def test_nor_if_nobody_can_restore_it_any_more(verify: Any) -> None:
    """The shards of step 10 that ``two`` had are gone."""
    old = Stored(replace(of_step(10).manifest, shards=MANIFEST.shards * 2, count=2), (0,))
    shards = replace(old.manifest, holders=((ONE, TWO), (TWO,)))
    late = FakeStore([(Stored(shards, (0,)), of_step(20), of_step(30))])
    found = verify(late, FakeStore([(of_step(20), of_step(30))]))
    assert all(sound for _, sound in found)


def test_what_is_rotten_is_damage(verify: Any) -> None:
    found = verify(FakeStore([(WHOLE,)]), FakeStore([(WHOLE,)], rotten=True))
    assert found == [("one", True), ("two", False)]


def test_what_was_never_completed_is_no_damage(verify: Any) -> None:
    """All was killed when ``one`` had the manifest of step 20 and ``two`` had not."""
    begun, newest = of_step(20), of_step(30)
    one, two = FakeStore([(begun, newest)]), FakeStore([(newest,)])
    assert verify(one, two, 30) == [("one", True), ("two", True)]
    assert ("two", False) in verify(one, two, 20, 30), "it was announced, so something is lost"
    assert ("two", False) in verify(one, two), "nothing is known of what was announced"
    assert ("two", False) in verify(FakeStore([(begun,)]), FakeStore([()]), 10), "nothing is newer"


def test_a_manifest_that_nobody_can_read_is_damage(verify: Any) -> None:
    name = layout.final_name(MANIFEST.step, MANIFEST.stamp)
    torn = FakeStore([()], torn=[name])
    assert verify(torn, FakeStore([()])) == [("one", False)]
    # Where another has it, its shards are missing here.
    assert verify(FakeStore([(WHOLE,)]), torn) == [("one", True), ("two", False)]


def test_of_a_lineage_that_was_left_one_is_had_when_it_is_named() -> None:
    """As of a node that was away, and is back."""
    left = replace(MANIFEST, lineage=Lineage("left"), stamp=Stamp("cd"))
    later = replace(MANIFEST, step=20, stamp=Stamp("ef"))
    rows = summary.rows({ONE: (WHOLE, Stored(later, (0,))), TWO: (Stored(left, (0,)),)})

    def chosen(step: int | None, lineage: str | None) -> tuple[int, str]:
        manifest = inventory.newest(rows, OpenCheckpoint(JOB, step, lineage)).manifest
        return manifest.step, manifest.lineage

    assert chosen(None, None) == (20, "line")
    assert chosen(None, "left") == chosen(10, "left") == (10, "left")
    assert chosen(10, "line") == (10, "line")
    with pytest.raises(
        OperationError,
        match=r"job has no checkpoint of lineage lef; there are those of left, line$",
    ):
        chosen(None, "lef")
    with pytest.raises(
        OperationError, match=r"there is no checkpoint of step 20; there are those of step 10$"
    ):
        chosen(20, "left")
    with pytest.raises(
        OperationError, match=r"no checkpoint of step 123; there are those of step 10, 20$"
    ):
        chosen(123, None)


@pytest.mark.parametrize("parts", [True, None])
def test_many_checkpoints_are_told_in_parts_to_who_takes_them(parts: bool | None) -> None:
    rows = summary.rows({ONE: [Stored(replace(MANIFEST, step=n), (0,)) for n in range(6000)]})
    said = Said()
    left = asyncio.run(inventory._told(cast(Stream, said), parts, removed=[], kept=rows))
    sent = [step["step"] for frame in said.frames for step in frame["kept"]]
    assert [*sent, *(row["step"] for row in left["kept"])] == list(range(6000))
    assert left["removed"] == [] and bool(said.frames) is bool(parts)
    assert all(frame["more"] and len(encode(frame)) <= PART_BYTES for frame in said.frames)
