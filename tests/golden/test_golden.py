"""What version 0.1 wrote and said, which every later version reads.

Each folder is what one version left: the journal, the checkpoint and the other files of a node that
was killed in the midst of a job, and one frame or more of each kind that daemons, trainers and
reducers sent. Never change them; add a folder when a format changes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from elasticd.checkpoints import integrity, manifest
from elasticd.core.words.codec import Words, to_plain
from elasticd.core.words.frames import decode_frame, encode_frame
from elasticd.core.words.reducers import FROM_REDUCER, TO_REDUCER
from elasticd.core.words.stable import Stable
from elasticd.core.words.trainers import FROM_TRAINER, TO_TRAINER, GiveWorld
from elasticd.shell.storage.marks import Marks
from elasticd.shell.storage.records import StableRecords
from elasticd.train.world import TrainerWorld
from elasticd.types import JobId

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if path.name.startswith("v"))
CHECKPOINT = "checkpoints/test-1-f8lb/00000400-1f1def2a3d6c"


def frames(version: str, name: str) -> Iterator[dict[str, Any]]:
    with (HERE / version / f"{name}.frames").open("rb") as file:
        yield from msgpack.Unpacker(file, raw=False)


def has_all_of(plain: Any, old: Any) -> bool:
    """Whether nothing that was said is lost; there may be more."""
    if isinstance(old, dict):
        return isinstance(plain, dict) and all(
            key in plain and has_all_of(plain[key], value) for key, value in old.items()
        )
    if isinstance(old, list):
        return (
            isinstance(plain, list)
            and len(plain) == len(old)
            and all(has_all_of(mine, theirs) for mine, theirs in zip(plain, old, strict=True))
        )
    return bool(plain == old)


@pytest.fixture
def stable(tmp_path: Path) -> Stable:
    shutil.copy(HERE / "v0.1/journal", tmp_path / "journal")
    memory = StableRecords(tmp_path)
    memory.close()
    return memory.recover()


def test_a_journal_is_read(stable: Stable) -> None:
    first, second = stable.records
    assert (first.id, first.state, first.step) == ("test-1-f8lb", "finished", 400)
    assert (second.id, second.state, second.intent) == ("test-2-i9cm", "running", 0)
    assert first.digest is not None and second.spec["train"]["steps"] == 4000
    assert stable.formed is not None and set(stable.formed.members) == {
        "node-0",
        "node-1",
        "node-2",
    }
    assert [(record.node, record.draining) for record in stable.nodes] == [("node-2", True)]
    assert {world.job for world in stable.worlds} == {second.id}  # the other has ended
    assert stable.counter >= max(world.generation.counter for world in stable.worlds)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_daemons_say_is_read(version: str) -> None:
    kinds = set()
    for plain in frames(version, "daemons"):
        frame = decode_frame(plain)
        assert has_all_of(encode_frame(frame), plain)
        kinds.add(plain["message"]["t"])
    assert len(kinds) >= 50


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ["trainer", "reducer"])
def test_what_children_say_is_read(version: str, role: str) -> None:
    said = list(frames(version, f"from_{role}"))
    assert len(said) >= 4
    words: Words[Any] = FROM_TRAINER if role == "trainer" else FROM_REDUCER
    for message in said:
        word = words.decode(message)
        assert has_all_of({**words.encode(word), "fds": message.get("fds")}, message)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ["trainer", "reducer"])
def test_children_of_that_version_read_what_they_are_told(version: str, role: str) -> None:
    """A daemon that is newer than its children says the same in the same way."""
    words: Words[Any] = TO_TRAINER if role == "trainer" else TO_REDUCER
    told = list(frames(version, f"to_{role}"))
    assert told
    for message in told:
        assert has_all_of({**words.encode(words.decode(message)), "fds": 0}, {**message, "fds": 0})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_trainer_reads_its_world(version: str) -> None:
    worlds = [message for message in frames(version, "to_trainer") if message["t"] == "world"]
    assert worlds
    for message in worlds:
        word = TO_TRAINER.decode(message)
        assert isinstance(word, GiveWorld)
        world = TrainerWorld.as_given(word)
        assert to_plain(world.shares) == message["shares"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_checkpoint_is_read(version: str) -> None:
    folder = HERE / version / CHECKPOINT
    found = manifest.decode((folder / "manifest.msgpack").read_bytes())
    assert (found.step, found.count) == (400, 3)
    for shard in found.shards:
        data = (folder / f"shard-{shard.index:05}-of-{found.count:05}.safetensors").read_bytes()
        assert len(data) == shard.bytes
        verifier = integrity.Verifier(shard.digest)
        verifier.update(data)
        assert verifier.finish() is None
    assert manifest.decode(manifest.encode(found)) == found


def test_marks_are_read(tmp_path: Path) -> None:
    shutil.copytree(HERE / "v0.1/reached", tmp_path / "reached")
    (mark,) = Marks(tmp_path / "reached").read([JobId("test-1-f8lb")])
    assert mark.step == 400
    assert (mark.generation.counter, mark.generation.leader) == (9, "node-0")
