"""One node's checkpoints: put, committed, read, found rotten, repaired, removed, swept."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.checkpoints import layout
from elasticd.checkpoints.manifest import Manifest, Shard, Stored
from elasticd.checkpoints.store import LocalStore
from elasticd.errors import StateError
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

JOB, ME, PEER = JobId("job-1"), NodeId("me"), NodeId("peer")
COUNT = 2
WAIT = 20.0


def content(step: int, index: int) -> bytes:
    return bytes([step, index]) * (50 + index)


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def stamp_of(step: int) -> Stamp:
    return Stamp(f"{step:032x}"[::-1])


def manifest_of(
    step: int, holders: tuple[tuple[NodeId, ...], ...] = ((ME, PEER), (PEER,))
) -> Manifest:
    shards = tuple(
        Shard(index, len(content(step, index)), digest_of(content(step, index)))
        for index in range(COUNT)
    )
    return Manifest(
        *(JOB, Lineage("line"), None, step, stamp_of(step), NO_TAG, step * 64, 8, COUNT),
        *(shards, holders, "00", 0.0),
    )


def put(store: LocalStore, step: int, index: int) -> Shard:
    data = content(step, index)
    chunks = (data[start : start + 7] for start in range(0, len(data), 7))
    return store.put_shard(JOB, step, stamp_of(step), index, COUNT, chunks, digest_of(data))


def commit(store: LocalStore, *steps: int) -> None:
    for step in steps:
        put(store, step, 0)
        store.commit(manifest_of(step))


def path_of(tmp_path: Path, step: int, index: int) -> Path:
    return (
        tmp_path / JOB / layout.final_name(step, stamp_of(step)) / layout.shard_name(index, COUNT)
    )


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, ME)


def test_an_empty_store(store: LocalStore, tmp_path: Path) -> None:
    missing = LocalStore(tmp_path / "not-there", ME)
    for each in (store, missing):
        assert each.jobs() == []
        assert each.manifests(JOB) == [] and each.stored(JOB) == []
        assert each.held(JOB, 1, stamp_of(1)) == ()
        assert each.sweep() == each.sweep(JOB)
        each.remove(JOB, 1, stamp_of(1))


def test_a_checkpoint_exists_once_it_is_committed(store: LocalStore) -> None:
    assert put(store, 10, 0) == manifest_of(10).shards[0]
    assert store.manifests(JOB) == []
    assert store.held(JOB, 10, stamp_of(10)) == ()
    assert store.held(JOB, 10, stamp_of(10), COUNT) == (0,)
    store.commit(manifest_of(10))
    assert store.jobs() == [JOB]
    assert store.manifests(JOB) == [manifest_of(10)]
    assert store.stored(JOB) == [Stored(manifest_of(10), (0,))]
    assert store.held(JOB, 10, stamp_of(10)) == (0,)
    with store.open_shard(JOB, 10, stamp_of(10), 0, COUNT) as file:
        assert file.read() == content(10, 0)
    with pytest.raises(StateError, match="shard-00001-of-00002"):
        store.open_shard(JOB, 10, stamp_of(10), 1, COUNT)
    assert store.verify(JOB, 10, stamp_of(10)) == []


def test_a_shard_can_be_read_before_the_commit(store: LocalStore) -> None:
    put(store, 10, 1)
    with store.open_shard(JOB, 10, stamp_of(10), 1, COUNT) as file:
        assert file.read() == content(10, 1)


def test_commit_again_and_with_more_holders(store: LocalStore) -> None:
    commit(store, 10)
    store.commit(manifest_of(10))
    put(store, 10, 1)
    more = manifest_of(10, ((ME, PEER), (ME, PEER)))
    store.commit(more)
    assert store.stored(JOB) == [Stored(more, (0, 1))]


def test_commit_again_takes_in_what_was_written_again(store: LocalStore, tmp_path: Path) -> None:
    commit(store, 10)
    kept, lost = content(10, 0), content(10, 1)
    partial = tmp_path / JOB / layout.partial_name(10, stamp_of(10))
    partial.mkdir()
    (partial / layout.shard_name(0, COUNT)).write_bytes(b"?" * len(kept))
    (partial / layout.shard_name(1, COUNT)).write_bytes(lost)
    more = manifest_of(10, ((ME, PEER), (ME, PEER)))
    store.commit(more)
    assert store.stored(JOB) == [Stored(more, (0, 1))]
    assert path_of(tmp_path, 10, 0).read_bytes() == kept
    assert path_of(tmp_path, 10, 1).read_bytes() == lost


@pytest.mark.parametrize("again", [False, True])
def test_what_was_written_of_another_state_never_counts(
    store: LocalStore, tmp_path: Path, again: bool
) -> None:
    """It has the right size; a trainer that differs from the others has written it."""
    if again:
        commit(store, 10)
    else:
        put(store, 10, 0)
    partial = tmp_path / JOB / layout.partial_name(10, stamp_of(10))
    partial.mkdir(exist_ok=True)
    (partial / layout.shard_name(1, COUNT)).write_bytes(b"?" + content(10, 1)[1:])
    where = (JOB, 10, stamp_of(10))
    assert not store.is_right(*where, 1, COUNT, digest_of(content(10, 1)))
    assert store.is_right(*where, 0, COUNT, digest_of(content(10, 0)))
    store.commit(manifest_of(10))
    assert store.stored(JOB) == [Stored(manifest_of(10), (0,))]
    assert store.verify(*where) == []
    if again:
        with pytest.raises(StateError, match="is missing, though this node is a holder"):
            store.commit(manifest_of(10, ((ME, PEER), (ME, PEER))))


def test_a_right_shard_that_the_manifest_does_not_count_is_a_copy(store: LocalStore) -> None:
    put(store, 10, 1)
    commit(store, 10)
    assert store.stored(JOB) == [Stored(manifest_of(10), (0, 1))]


def test_a_node_without_a_shard_keeps_the_manifest(store: LocalStore) -> None:
    elsewhere = manifest_of(10, ((PEER,), (PEER,)))
    store.commit(elsewhere)
    assert store.stored(JOB) == [Stored(elsewhere, ())]
    assert store.manifests(JOB) == [elsewhere]


def test_nothing_is_committed_without_what_this_node_is_to_hold(store: LocalStore) -> None:
    with pytest.raises(StateError, match=r"shard-00000-of-00002.*is missing"):
        store.commit(manifest_of(10))
    put(store, 10, 0)
    with pytest.raises(StateError, match="has 100 bytes, not 7"):
        shards = (Shard(0, 7, "0" * 64), manifest_of(10).shards[1])
        store.commit(replace(manifest_of(10), shards=shards))
    assert store.stored(JOB) == []


def test_commit_drops_the_files_of_another_cut(store: LocalStore, tmp_path: Path) -> None:
    data = b"whole"
    store.put_shard(JOB, 10, stamp_of(10), 0, 1, [data], digest_of(data))
    commit(store, 10)
    names = [path.name for path in path_of(tmp_path, 10, 0).parent.iterdir()]
    assert sorted(names) == [layout.MANIFEST_NAME, layout.shard_name(0, COUNT)]


def test_another_state_of_the_same_name_is_refused(store: LocalStore) -> None:
    commit(store, 10)
    alike = Stamp(stamp_of(10)[:12] + "f" * 20)
    shards = (Shard(0, 0, "1" * 64), Shard(1, 0, "2" * 64))
    for other in (
        replace(manifest_of(10), stamp=alike),
        replace(manifest_of(10), shards=shards),
        replace(manifest_of(10), lineage=Lineage("other")),
    ):
        with pytest.raises(StateError, match="another state is committed there"):
            store.commit(other)
    with pytest.raises(StateError, match="another state"):
        store.held(JOB, 10, alike)
    with pytest.raises(StateError, match="another state"):
        store.put_shard(JOB, 10, alike, 0, COUNT, [b""], digest_of(b""))
    assert store.manifests(JOB) == [manifest_of(10)]


@pytest.mark.parametrize("first", ["shard", "manifest"])
def test_what_only_names_others_gives_way_to_another_cut(store: LocalStore, first: str) -> None:
    whole = b"whole"
    shards = (Shard(0, len(whole), digest_of(whole)),)
    cut = replace(manifest_of(10), count=1, shards=shards, holders=((PEER,),))
    store.commit(cut)
    here = manifest_of(10, ((PEER,), (PEER,)))
    assert store.takes(here)
    if first == "shard":
        put(store, 10, 1)
        assert store.coming(JOB, 10, stamp_of(10), COUNT) == (1,)
    store.commit(here)
    assert store.stored(JOB) == [Stored(here, (1,) if first == "shard" else ())]
    # What has a shard stays.
    put(store, 10, 1)
    assert not store.takes(cut)
    with pytest.raises(StateError, match="another state is committed there"):
        store.commit(cut)
    with pytest.raises(StateError, match="not a shard of this checkpoint"):
        store.put_shard(JOB, 10, stamp_of(10), 0, 1, [whole], digest_of(whole))


def test_what_is_to_hold_a_shard_gives_way_to_nothing(store: LocalStore, tmp_path: Path) -> None:
    commit(store, 10)
    path_of(tmp_path, 10, 0).unlink()
    assert not store.takes(replace(manifest_of(10), shards=manifest_of(20).shards))


def test_a_shard_with_the_wrong_digest_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"shard-00000-of-00002\.safetensors: refused: its digest"):
        store.put_shard(JOB, 10, stamp_of(10), 0, COUNT, [b"rotten"], "0" * 64)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(StateError, match="not a shard of this checkpoint"):
        store.put_shard(JOB, 10, stamp_of(10), 2, COUNT, [b""], digest_of(b""))
    commit(store, 10)
    for count, digest in ((COUNT, "0" * 64), (3, manifest_of(10).shards[0].digest)):
        with pytest.raises(StateError, match="not a shard of this checkpoint"):
            store.put_shard(JOB, 10, stamp_of(10), 0, count, [b""], digest)


def test_two_that_write_one_shard_at_the_same_time_both_have_it_whole(store: LocalStore) -> None:
    """A node's trainer and its daemon, say. The second begins while the first writes, and ends
    after it."""
    data, began, over = content(10, 0), threading.Event(), threading.Event()

    def put_by(chunks: Iterator[bytes]) -> Shard:
        return store.put_shard(JOB, 10, stamp_of(10), 0, COUNT, chunks, digest_of(data))

    def second() -> Iterator[bytes]:
        yield data[:9]
        began.set()
        assert over.wait(WAIT)
        yield data[9:]

    def first() -> Iterator[bytes]:
        yield data[:9]
        assert began.wait(WAIT)
        yield data[9:]

    with ThreadPoolExecutor(2) as threads:
        try:
            one, other = threads.submit(put_by, first()), threads.submit(put_by, second())
            one.result(WAIT)
            with store.open_shard(JOB, 10, stamp_of(10), 0, COUNT) as file:
                assert file.read() == data
        finally:
            over.set()
        other.result(WAIT)
    store.commit(manifest_of(10))
    assert store.verify(JOB, 10, stamp_of(10)) == []


def test_a_broken_stream_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    class Gone(Exception):
        pass

    def broken(error: Exception) -> Iterator[bytes]:
        yield b"some"
        raise error

    with pytest.raises(Gone):
        store.put_shard(JOB, 10, stamp_of(10), 0, COUNT, broken(Gone()), "0" * 64)
    with pytest.raises(StateError, match=r"shard-00000.*reset by peer"):
        reset = ConnectionResetError(104, "reset by peer")
        store.put_shard(JOB, 10, stamp_of(10), 0, COUNT, broken(reset), "0" * 64)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_truncated_shard_is_not_held_and_is_reported(store: LocalStore, tmp_path: Path) -> None:
    commit(store, 10)
    path = path_of(tmp_path, 10, 0)
    path.write_bytes(content(10, 0)[:-1])
    assert store.manifests(JOB) == []
    assert store.stored(JOB) == [Stored(manifest_of(10), ())]
    (problem,) = store.sweep().problems
    assert (problem.path, problem.shard) == (path, 0)
    assert problem.reason == "has 99 bytes, not 100"
    assert store.verify(JOB, 10, stamp_of(10)) == [problem]
    path.unlink()
    (problem,) = store.verify(JOB, 10, stamp_of(10))
    assert problem.reason == "is missing, though this node is a holder"
    put(store, 10, 0)
    assert store.manifests(JOB) == [manifest_of(10)]
    assert store.sweep().problems == ()


def test_a_rotten_shard_is_found_by_verify_and_repaired(store: LocalStore, tmp_path: Path) -> None:
    commit(store, 10)
    path = path_of(tmp_path, 10, 0)
    path.write_bytes(b"x" + content(10, 0)[1:])
    (problem,) = store.verify(JOB, 10, stamp_of(10))
    assert problem.shard == 0 and "digest" in problem.reason
    put(store, 10, 0)
    assert store.verify(JOB, 10, stamp_of(10)) == []


def test_a_rotten_manifest_is_reported_and_can_be_committed_again(
    store: LocalStore, tmp_path: Path
) -> None:
    commit(store, 10)
    path = path_of(tmp_path, 10, 0).with_name(layout.MANIFEST_NAME)
    path.write_bytes(path.read_bytes()[:-3])
    assert store.stored(JOB) == [] == store.manifests(JOB)
    assert [problem.path for problem in store.sweep().problems] == [path]
    assert [problem.path for problem in store.verify(JOB, 10, stamp_of(10))] == [path]
    assert store.held(JOB, 10, stamp_of(10), COUNT) == (0,)
    store.commit(manifest_of(10))
    assert store.manifests(JOB) == [manifest_of(10)]


def test_a_folder_renamed_by_hand_is_not_believed(store: LocalStore, tmp_path: Path) -> None:
    commit(store, 10)
    folder = path_of(tmp_path, 10, 0).parent
    folder.rename(folder.with_name(layout.final_name(11, stamp_of(11))))
    assert store.stored(JOB) == []
    (problem,) = store.sweep().problems
    assert "manifest of another checkpoint" in problem.reason


def test_checkpoints_are_listed_by_step(store: LocalStore) -> None:
    commit(store, 20, 0, 200, 3)
    assert [m.step for m in store.manifests(JOB)] == [0, 3, 20, 200]
    store.remove(JOB, 20, stamp_of(20))
    put(store, 250, 0)
    store.remove(JOB, 250, stamp_of(250))
    assert store.held(JOB, 250, stamp_of(250), COUNT) == ()
    assert [m.step for m in store.manifests(JOB)] == [0, 3, 200]


def test_sweep_removes_what_a_crash_leaves(store: LocalStore, tmp_path: Path) -> None:
    put(store, 10, 0)
    commit(store, 20)
    put(store, 30, 0)
    folder = tmp_path / JOB
    left = [
        *(path_of(tmp_path, 20, 0).with_suffix(".safetensors.tmp"), folder / "00000005-ab.tmp"),
        folder / layout.partial_name(30, stamp_of(30)) / "shard-00001-of-00002.safetensors.tmp",
    ]
    left[1].mkdir()
    (left[1] / "shard").touch()
    left[0].touch()
    left[2].touch()
    foreign = folder / "notes.txt"
    foreign.touch()
    current = [(JOB, 10, stamp_of(10)), (JOB, 20, stamp_of(20)), (JOB, 30, stamp_of(30))]
    assert store.sweep(current=current).removed == (left[1],)
    swept = store.sweep(JOB)
    assert set(swept.removed) == {left[0], left[2], folder / layout.partial_name(10, stamp_of(10))}
    assert not any(path.exists() for path in swept.removed) and foreign.exists()
    assert store.sweep().removed == ()
    assert store.held(JOB, 30, stamp_of(30), COUNT) == (0,)


def test_sweep_leaves_what_the_trainer_of_a_job_is_writing(
    store: LocalStore, tmp_path: Path
) -> None:
    """A daemon that was restarted takes it over, and knows not what it writes."""
    put(store, 10, 0)
    commit(store, 20)
    put(store, 30, 0)
    writing = tmp_path / JOB / layout.partial_name(30, stamp_of(30)) / "shard-00001-of-00002.tmp"
    writing.touch()
    assert store.sweep(written=[JOB]).removed == ()
    partial = tmp_path / JOB / layout.partial_name(10, stamp_of(10))
    assert set(store.sweep(written=[JobId("other")]).removed) == {writing, partial}


def test_sweep_leaves_what_a_newer_history_writes(store: LocalStore, tmp_path: Path) -> None:
    """A restore went back behind a final checkpoint that has lost its other shards."""
    commit(store, 20)
    put(store, 10, 0)
    folder = tmp_path / JOB
    final = folder / layout.final_name(20, stamp_of(20)) / layout.MANIFEST_NAME
    partial = folder / layout.partial_name(10, stamp_of(10))
    os.utime(partial, ns=(0, final.stat().st_mtime_ns + 1))
    assert store.sweep().removed == ()
    os.utime(partial, ns=(0, final.stat().st_mtime_ns - 1))
    assert store.sweep().removed == (partial,)


@pytest.mark.parametrize("job", ["", ".", "..", "a/b", "/etc", ".hidden", "a\0b", "a.tmp"])
def test_a_job_can_t_lead_out_of_the_store(store: LocalStore, job: str) -> None:
    with pytest.raises(StateError, match="can't be named"):
        store.manifests(JobId(job))


def test_without_a_node_nothing_is_missing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.commit(manifest_of(10))
    assert store.manifests(JOB) == [manifest_of(10)]
    put(store, 10, 0)
    path_of(tmp_path, 10, 0).write_bytes(b"")
    assert store.manifests(JOB) == []


def test_what_the_disk_refuses_is_said_with_the_path(tmp_path: Path) -> None:
    (tmp_path / JOB).touch()
    store = LocalStore(tmp_path, ME)
    with pytest.raises(StateError, match=f"{JOB}"):
        put(store, 10, 0)
    with pytest.raises(StateError, match=f"{JOB}"):
        store.commit(manifest_of(10))


def test_what_has_lost_its_manifest_is_not_on_its_way(store: LocalStore, tmp_path: Path) -> None:
    """Else whoever verifies would wait for it, and say that nothing is wrong."""
    put(store, 10, 0)
    assert store.coming(JOB, 10, stamp_of(10), COUNT) == (0,)
    store.commit(manifest_of(10))
    assert store.coming(JOB, 10, stamp_of(10), COUNT) == ()
    path_of(tmp_path, 10, 0).with_name(layout.MANIFEST_NAME).write_bytes(b"")
    assert store.coming(JOB, 10, stamp_of(10), COUNT) == ()
