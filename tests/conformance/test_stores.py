"""What every store of checkpoints does, ours and another node's: one suite for all."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticd.checkpoints import layout
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.peer import RUNNING_ANSWER, Call, PeerStore, answer
from elasticd.checkpoints.port import Store
from elasticd.checkpoints.questions import HeldShards, Question, WantShard
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words.bulk import WANTS
from elasticd.errors import OperationError, ProtocolError, StateError
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

JOB, ME, PEER = JobId("job-1"), NodeId("me"), NodeId("peer")
STAMP = Stamp("ab" * 16)
COUNT = 3


@dataclass(frozen=True)
class Case:
    """``store`` is under test; what it shows is written through ``behind``."""

    store: Store
    behind: LocalStore
    root: Path

    def path(self, index: int) -> Path:
        folder = self.root / JOB / layout.final_name(7, STAMP)
        return folder / layout.shard_name(index, COUNT)


def serving(store: Store) -> Call:
    """As a daemon answers, without a network; a verification takes several answers."""
    asked: list[str] = []

    def call(wanted: Question | WantShard, sink: int) -> int:
        if isinstance(wanted, WantShard):
            w = wanted
            try:
                with store.open_shard(w.job, w.step, w.stamp, w.index, w.count) as file:
                    return os.write(sink, file.read())
            except StateError as error:
                raise OperationError(str(error)) from None
        asked.append(wanted.kind)
        if asked[-3:] != ["verify"] * 3 and asked[-1] == "verify":
            return os.write(sink, RUNNING_ANSWER)
        return os.write(sink, answer(store, wanted))

    return call


@pytest.fixture(params=["local", "peer"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    behind = LocalStore(tmp_path, ME)
    store = behind if request.param == "local" else PeerStore(ME, serving(behind))
    return Case(store, behind, tmp_path)


def content(index: int) -> bytes:
    return bytes([index]) * (40 + index)


def digest(index: int) -> str:
    return hashlib.blake2b(content(index), digest_size=32).hexdigest()


def manifest() -> Manifest:
    shards = tuple(Shard(i, len(content(i)), digest(i)) for i in range(COUNT))
    holders = ((ME, PEER), (PEER,), (ME,))
    return Manifest(
        *(JOB, Lineage("line"), None, 7, STAMP, NO_TAG, 56, 8, COUNT),
        *(shards, holders, "00", 1.5),
    )


def fill(case: Case) -> None:
    for index in (0, 2):
        case.behind.put_shard(JOB, 7, STAMP, index, COUNT, [content(index)], digest(index))
    case.behind.commit(manifest())


def test_nothing_is_there_at_first(case: Case) -> None:
    assert case.store.jobs() == []
    assert case.store.stored(JOB) == []
    assert case.store.held(JOB, 7, STAMP) == ()
    case.store.remove(JOB, 7, STAMP)
    assert len(case.store.verify(JOB, 7, STAMP)) == 1


def test_before_the_commit_shards_are_held_but_nothing_is_stored(case: Case) -> None:
    case.behind.put_shard(JOB, 7, STAMP, 2, COUNT, [content(2)], digest(2))
    assert case.store.held(JOB, 7, STAMP, COUNT) == (2,) == case.store.coming(JOB, 7, STAMP, COUNT)
    assert case.store.held(JOB, 7, STAMP) == ()
    assert case.store.stored(JOB) == []
    assert case.store.jobs() == [JOB]


def test_a_committed_checkpoint_is_listed_and_read(case: Case) -> None:
    fill(case)
    assert case.store.jobs() == [JOB]
    assert case.store.stored(JOB) == [Stored(manifest(), (0, 2))]
    assert case.store.held(JOB, 7, STAMP) == (0, 2)
    assert case.store.coming(JOB, 7, STAMP, COUNT) == ()
    for index in (0, 2):
        with case.store.open_shard(JOB, 7, STAMP, index, COUNT) as file:
            assert file.read() == content(index)
    assert case.store.verify(JOB, 7, STAMP) == []


def test_what_is_not_there_can_not_be_opened(case: Case) -> None:
    fill(case)
    with pytest.raises((StateError, OperationError), match="shard-00001"):
        case.store.open_shard(JOB, 7, STAMP, 1, COUNT)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [("rotten", "digest"), ("short", "has 39 bytes, not 40"), ("gone", "is missing")],
)
def test_damage_is_found_and_said(case: Case, damage: str, reason: str) -> None:
    fill(case)
    good = content(0)
    if damage == "gone":
        case.path(0).unlink()
    else:
        case.path(0).write_bytes(b"?" + good[1:] if damage == "rotten" else good[:-1])
    (problem,) = case.store.verify(JOB, 7, STAMP)
    assert (problem.path, problem.shard) == (case.path(0), 0)
    assert reason in problem.reason
    assert case.store.verify(JOB, 7, STAMP, 0) == [problem]
    assert case.store.verify(JOB, 7, STAMP, 2) == []
    assert case.store.held(JOB, 7, STAMP) == ((0, 2) if damage == "rotten" else (2,))


@pytest.mark.parametrize("torn", [None, b"", b"?"])
def test_a_manifest_that_cannot_be_read_is_said(case: Case, torn: bytes | None) -> None:
    fill(case)
    assert case.store.unreadable(JOB) == []
    path = case.path(0).with_name(layout.MANIFEST_NAME)
    path.unlink() if torn is None else path.write_bytes(torn)
    assert case.store.stored(JOB) == []
    assert case.store.unreadable(JOB) == [path.parent.name]
    assert case.store.coming(JOB, 7, STAMP, COUNT) == ()


def test_what_is_removed_is_gone(case: Case) -> None:
    fill(case)
    case.store.remove(JOB, 7, STAMP)
    assert case.store.stored(JOB) == [] == case.behind.stored(JOB)
    case.store.remove(JOB, 7, STAMP)


def test_a_job_that_can_not_be_is_refused(case: Case) -> None:
    with pytest.raises(StateError, match="can't be named"):
        case.store.stored(JobId("../elsewhere"))


@pytest.mark.parametrize("said", [b"", b"\xc1", b"\x01"])
def test_a_peer_that_talks_nonsense_is_an_error(said: bytes) -> None:
    with pytest.raises(ProtocolError):
        PeerStore(ME, lambda request, sink: os.write(sink, said)).stored(JOB)


def test_a_request_that_is_none_is_an_error(tmp_path: Path) -> None:
    for request in ({"what": "stored"}, {"what": "erase", "job": JOB}, {"what": "held", "job": 1}):
        with pytest.raises(ProtocolError):
            WANTS.decode(request)
    with pytest.raises(ProtocolError, match="5000 shards"):
        answer(LocalStore(tmp_path), HeldShards(JOB, 7, STAMP, 5000))
