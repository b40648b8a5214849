"""The background writer: by reference, in slices, late, refused by the disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from elasticd.checkpoints.codec import read_tensors
from elasticd.checkpoints.integrity import Verifier
from elasticd.core.words.trainers import FROM_TRAINER, FromTrainer
from elasticd.errors import GenerationLost
from elasticd.train.states import writer as writing
from elasticd.train.states.state import Snapshot
from elasticd.train.states.writer import CheckpointWriter, Task, mode_of
from elasticd.train.world import TrainerWorld, Writes
from elasticd.types import JobId, Lineage, NodeId, Point, SnapshotMode, Stamp, Tag

WAIT = 20.0


def snapshot_of(step: int, elements: int = 1000) -> Snapshot:
    tensors = {
        "model/w": mx.random.normal((elements,)),
        "optimizer/w.v": mx.random.normal((elements,)),
    }
    mx.eval(tensors)
    point = Point(Lineage("line"), step, Stamp(f"{step:032x}"))
    return Snapshot(point, 0, step * 8, tensors, {"tracked": {}}, ("w",), ("w",))


def world_of(folder: Path, rank: int = 0, size: int = 2) -> TrainerWorld:
    nothing: Any = ((),) * size
    return TrainerWorld(
        generation=Tag(1, NodeId("a"), "n"),
        job=JobId("job"),
        rank=rank,
        size=size,
        members=tuple(NodeId(f"node-{i}") for i in range(size)),
        point=Point(Lineage("line"), 0, Stamp("0" * 32)),
        state="init",
        shares_now=nothing,
        shares=nothing,
        reduction="exact",
        checkpointed=-1,
        checkpoint_folder=folder,
        writes=Writes(every=10, count=size, replicas=2),
    )


class Heard:
    """What the writer says; ``hold`` keeps it inside its next message until it is set."""

    def __init__(self) -> None:
        self.said: queue.Queue[Mapping[str, Any]] = queue.Queue()
        self.go = threading.Event()
        self.go.set()
        self.notes: dict[str, Any] = {}

    def send(self, word: FromTrainer) -> None:
        message = FROM_TRAINER.encode(word)
        self.said.put(message)
        if message["t"] == "shards":
            assert self.go.wait(WAIT)

    def next(self) -> Mapping[str, Any]:
        return self.said.get(timeout=WAIT)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def writer(heard: Heard) -> CheckpointWriter:
    return CheckpointWriter(heard.send, heard.notes.update)


def test_each_shard_is_on_two_ranks_with_equal_digests(tmp_path: Path) -> None:
    snapshot = snapshot_of(10)
    reports = []
    for rank in range(2):
        heard = Heard()
        world = world_of(tmp_path / str(rank), rank)
        assert CheckpointWriter(heard.send, heard.notes.update).submit(Task(world, snapshot, 1e-6))
        reports.append(heard.next())
    one, two = reports
    assert one["digest"] == two["digest"] == snapshot.digest()
    assert one["shards"] == two["shards"] and len(one["shards"]) == 2
    files = sorted((tmp_path / "0").rglob("*.safetensors"))
    tensors, metadata = read_tensors(files)
    assert tensors.keys() == snapshot.tensors.keys()
    assert metadata == snapshot.metadata()
    for file, shard in zip(files, one["shards"], strict=True):
        check = Verifier(shard["digest"])
        check.update(file.read_bytes())
        assert check.finish() is None
        assert set(shard["tensors"]) == set(read_tensors([file])[0])
    assert (one["mode"], one["stall_seconds"]) == ("reference", 1e-6)


def test_the_digest_comes_from_who_has_the_first_shard_and_a_check_from_all(tmp_path: Path) -> None:
    snapshot = snapshot_of(10)
    for must in (False, True):
        digests, checks = [], set()
        for rank in range(3):
            heard = Heard()
            world = replace(world_of(tmp_path / str(rank), rank, 3), writes=Writes(10, 4, 1))
            CheckpointWriter(heard.send, heard.notes.update).submit(
                Task(world, snapshot, 0.0, must=must)
            )
            said = heard.next()
            digests.append(said["digest"])
            checks.add(said["check"])
        assert digests == [snapshot.digest(), *[snapshot.digest() if must else ""] * 2]
        assert checks == {snapshot.check()}, "with digests of its shards' tensors or without"


def test_a_late_writer_skips_one_and_says_so(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    heard.go.clear()
    world = world_of(tmp_path)
    assert writer.submit(Task(world, snapshot_of(10), 0.0))
    assert heard.next()["step"] == 10
    assert not writer.submit(Task(world, snapshot_of(20), 0.0))
    said = heard.next()
    assert (said["t"], said["step"]) == ("checkpoint_skipped", 20)
    assert "step 10 is still being written" in said["reason"]
    assert heard.notes["checkpoint_skipped"] == 20
    assert writer.submit(Task(world, snapshot_of(30), 0.0, must=True))
    heard.go.set()
    assert heard.next()["step"] == 30


def test_who_was_late_begins_only_where_it_meets_the_others(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    heard.go.clear()
    world = world_of(tmp_path)
    assert writer.submit(Task(world, snapshot_of(10), 0.0, "slices"))
    assert heard.next()["step"] == 10
    assert not writer.submit(Task(world, snapshot_of(20), 0.0))
    assert heard.next()["step"] == 20
    heard.go.set()
    writer.make_room(lambda: None)
    assert not writer.submit(Task(world, snapshot_of(30), 0.0))
    assert heard.next()["reason"] == "writing takes long: only every 20 steps one is begun"
    assert writer.submit(Task(world, snapshot_of(40), 0.0))


def test_a_disk_that_refuses_is_named(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    (tmp_path / "file").touch()
    assert writer.submit(Task(world_of(tmp_path / "file"), snapshot_of(10), 0.0))
    said = heard.next()
    assert said["t"] == "checkpoint_skipped" and "file" in said["reason"]


@pytest.mark.parametrize("mode", ["reference", "slices"])
def test_one_that_must_be_is_tried_again_until_the_disk_takes_it(
    tmp_path: Path,
    heard: Heard,
    writer: CheckpointWriter,
    monkeypatch: pytest.MonkeyPatch,
    mode: SnapshotMode,
) -> None:
    monkeypatch.setattr(writing, "RETRY_SECONDS", 0.001)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "mended").symlink_to("folder")
    (tmp_path / "here").symlink_to("file")
    assert writer.submit(Task(world_of(tmp_path / "here"), snapshot_of(10), 0.0, mode, must=True))
    assert heard.next()["t"] == "checkpoint_skipped"
    # At one stroke: an attempt that finds nothing there would be refused for another reason.
    (tmp_path / "mended").replace(tmp_path / "here")
    said = heard.next()
    assert (said["t"], said["step"]) == ("shards", 10), "and its refusal is told once"


def test_no_longer_once_a_newer_one_is_due(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    (tmp_path / "file").touch()
    writer.submit(Task(world_of(tmp_path / "file"), snapshot_of(10), 0.0, must=True))
    assert heard.next()["t"] == "checkpoint_skipped"
    writer.submit(Task(world_of(tmp_path / "other"), snapshot_of(20), 0.0, must=True))
    said = heard.next()
    assert (said["t"], said["step"], writer._again) == ("shards", 20, None)


def test_one_in_slices_that_is_refused_holds_up_no_update(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    (tmp_path / "file").touch()
    writer.submit(Task(world_of(tmp_path / "file"), snapshot_of(10), 0.0, "slices", must=True))
    assert heard.next()["t"] == "checkpoint_skipped"
    writer.make_room(lambda: None)
    assert writer._again is None


def test_a_disk_that_hangs_holds_up_an_update_no_longer_than_another(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = count(0.0)  # two threads ask it
    monkeypatch.setattr(writing, "MAX_STALL_SECONDS", 5.0)
    writer = CheckpointWriter(heard.send, heard.notes.update, lambda: next(times))
    heard.go.clear()  # it hangs at its end, which is as good as in the midst
    writer.submit(Task(world_of(tmp_path), snapshot_of(10), 0.0, "slices"))
    assert heard.next()["t"] == "shards"
    checks: list[int] = []
    writer.make_room(lambda: checks.append(len(checks)))
    assert checks, "it waited"
    writer.make_room(lambda: pytest.fail("it waited again"))
    heard.go.set()


def test_by_reference_an_update_never_waits(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    heard.go.clear()
    writer.submit(Task(world_of(tmp_path), snapshot_of(10), 0.0))
    heard.next()
    writer.make_room(lambda: pytest.fail("it waited"))
    heard.go.set()


def test_in_slices_the_update_waits_until_the_state_is_written(
    tmp_path: Path, heard: Heard, writer: CheckpointWriter
) -> None:
    heard.go.clear()
    writer.submit(Task(world_of(tmp_path), snapshot_of(10), 0.0, "slices"))
    assert heard.next()["mode"] == "slices"
    checks: list[int] = []

    def check() -> None:
        checks.append(len(checks))
        heard.go.set()

    writer.make_room(check)
    assert checks
    writer.make_room(lambda: pytest.fail("it waited"))


def test_a_wait_ends_with_its_world(tmp_path: Path, heard: Heard, writer: CheckpointWriter) -> None:
    heard.go.clear()
    writer.submit(Task(world_of(tmp_path), snapshot_of(10), 0.0, "slices"))
    heard.next()

    def check() -> None:
        raise GenerationLost("over")

    with pytest.raises(GenerationLost):
        writer.make_room(check)
    heard.go.set()


def test_a_wait_is_bounded_unless_the_checkpoint_is_a_must(
    tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_STALL_SECONDS", 0.0)
    updating, waited = threading.current_thread(), threading.Event()

    def clock() -> float:
        if threading.current_thread() is not updating:  # the first slice comes after this
            assert waited.wait(WAIT)
        return next(times)

    times = count(0.0)  # two threads ask it
    writer = CheckpointWriter(heard.send, heard.notes.update, clock)
    state = snapshot_of(10)
    writer.submit(Task(world_of(tmp_path), state, 0.0, "slices"))
    writer.make_room(waited.set)
    said = heard.next()
    assert (said["t"], said["step"]) == ("checkpoint_skipped", 10)
    waited.clear()
    writer.submit(Task(world_of(tmp_path), replace(state), 0.0, "slices", must=True))
    writer.make_room(waited.set)
    assert waited.is_set() and heard.next()["t"] == "shards"


def test_the_mode_follows_the_memory_unless_it_is_chosen() -> None:
    assert mode_of("auto", 100, 99) == "slices"
    assert mode_of("auto", 100, 100) == "reference"
    assert mode_of("reference", 100, 0) == "reference"
    assert mode_of("slices", 100, 1 << 40) == "slices"
