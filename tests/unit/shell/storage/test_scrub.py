"""The scrubber: what was removed, changed or has rotted comes back from peers; quotas hold."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from watchdog.events import FileModifiedEvent

from elasticd.checkpoints import layout
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words import effects as e
from elasticd.core.words.bulk import DoubtShard
from elasticd.core.words.records import JobRecord, JobState
from elasticd.core.words.shards import ShardsWritten
from elasticd.errors import OperationError
from elasticd.shell.storage import scrub
from elasticd.shell.storage.scrub import ChangesByHand, Damage, Scrubber
from elasticd.types import NO_TAG, JobId, Lineage
from tests.unit.shell.storage.storednode import (
    COUNT,
    JOB,
    ME,
    PEER,
    SIZE,
    SPEC,
    WAIT,
    Node,
    content,
    manifest_of,
    run,
    stamp_of,
)


@pytest.fixture(autouse=True)
def settled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "SETTLE_SECONDS", 0.05)


def test_what_was_removed_or_changed_by_hand_comes_back(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        async with node.scrubbed():
            node.path(5, 1).unlink()
            kind, fields = await node.event()
            assert (kind, fields["shard"]) == ("checkpoint_repaired", 1)
            assert node.path(5, 1).read_bytes() == content(5, 1)
            fd = os.open(node.path(5, 0), os.O_WRONLY)
            os.write(fd, b"by hand")
            os.close(fd)
            kind, fields = await node.event()
            assert (kind, fields["shard"]) == ("checkpoint_repaired", 0)
            assert node.store.verify(JOB, 5, stamp_of(5)) == []

    run(tmp_path, story)


@pytest.mark.parametrize("told", ["real", "link"])
def test_a_change_is_known_by_whichever_path_the_system_tells(tmp_path: Path, told: str) -> None:
    """Of /tmp/home macOS says /private/tmp/home, and Linux what is watched."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    seen: list[Path] = []
    handler = ChangesByHand(tmp_path / "link", seen.append)
    shard = Path(JOB, layout.final_name(5, stamp_of(5)), layout.shard_name(0, COUNT))
    handler.on_any_event(FileModifiedEvent(str(tmp_path / told / shard)))
    assert seen == [tmp_path / "link" / shard]


def test_rot_is_found_at_rest(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        spoilt = b"?" + content(5, 1)[1:]
        node.path(5, 1).write_bytes(spoilt)
        async with node.scrubbed(round_seconds=0.01):
            kind, fields = await node.event()
        assert (kind, fields["step"], fields["shard"]) == ("checkpoint_repaired", 5, 1)
        assert "digest" in fields["cause"]
        assert node.store.verify(JOB, 5, stamp_of(5)) == []

    run(tmp_path, story)


@pytest.mark.parametrize("torn", [b"", b"\x8a\xa6format", None])
@pytest.mark.parametrize("spoilt", [None, b"", b"?" * 100])
def test_a_manifest_that_a_power_cut_tore_comes_back(
    tmp_path: Path, torn: bytes | None, spoilt: bytes | None
) -> None:
    """Its shards are kept as far as they are right."""

    async def story(node: Node) -> None:
        node.make(5, 10)
        manifest = node.path(5, 0).with_name(layout.MANIFEST_NAME)
        whole = manifest.read_bytes()
        manifest.unlink() if torn is None else manifest.write_bytes(torn)
        if spoilt is not None:
            node.path(5, 1).write_bytes(spoilt)
        assert node.steps() == [10]
        async with node.scrubbed(retry_seconds=0.0):
            kind, fields = await node.event()
            assert (kind, fields["step"]) == ("checkpoint_repaired", 5)
            assert [m.step for m in await reported(node)] == [5, 10]
        assert node.steps() == [5, 10]
        assert manifest.read_bytes() == whole
        assert node.store.verify(JOB, 5, stamp_of(5)) == []
        assert len(node.asked) == (spoilt is not None)

    run(tmp_path, story)


def test_a_manifest_that_no_peer_has_is_told_of_once_and_tried_again(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        node.peer_answers = False
        async with node.scrubbed(retry_seconds=0.01):
            node.path(5, 0).with_name(layout.MANIFEST_NAME).write_bytes(b"by hand")
            kind, fields = await node.event()
            assert (kind, fields["step"]) == ("checkpoint_damaged", 5)
            node.peer_answers = True
            kind, fields = await node.event()
            assert (kind, fields["step"]) == ("checkpoint_repaired", 5)
        assert node.steps() == [5]

    run(tmp_path, story)


async def reported(node: Node) -> list[Manifest]:
    async with asyncio.timeout(WAIT):
        event = await node.reported.get()
    assert isinstance(event, e.StoreChanged)
    return [item.manifest for item in event.stored]


def test_a_shard_that_a_peer_could_not_use_is_read_again(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        node.path(5, 1).write_bytes(bytes(len(content(5, 1))))
        doubt = DoubtShard(JOB, 5, stamp_of(5), 1, COUNT)
        async with node.scrubbed():
            os.close(await node.states.serve(doubt))
            kind, fields = await node.event()
        assert (kind, fields["shard"]) == ("checkpoint_repaired", 1)
        assert node.store.verify(JOB, 5, stamp_of(5)) == []

    run(tmp_path, story)


def test_a_shard_that_is_rotten_and_whole_nowhere_is_set_aside(tmp_path: Path) -> None:
    """Until a peer has it again: who restores takes an older checkpoint meanwhile."""

    async def story(node: Node) -> None:
        node.make(5)
        node.peer_answers = False
        node.path(5, 1).write_bytes(bytes(len(content(5, 1))))
        async with node.scrubbed(retry_seconds=0.01):
            os.close(await node.states.serve(DoubtShard(JOB, 5, stamp_of(5), 1, COUNT)))
            kind, fields = await node.event()
            assert (kind, fields["shard"]) == ("checkpoint_damaged", 1)
            said = await asyncio.wait_for(node.reported.get(), WAIT)
            assert isinstance(said, e.StoreChanged)
            assert [item.held for item in said.stored] == [(0,)]
            node.peer_answers = True
            kind, fields = await node.event()
            assert (kind, fields["shard"]) == ("checkpoint_repaired", 1)
        assert node.store.verify(JOB, 5, stamp_of(5)) == []

    run(tmp_path, story)


def test_a_peer_that_sends_a_rotten_shard_is_told(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        node.path(5, 0).unlink()
        node.peer_rots = True
        with pytest.raises(OperationError, match="digest"):
            await node.states.copies.replace(manifest_of(5), 0, (PEER,))
        assert [request["what"] for request in node.asked] == ["shard", "doubt"]
        assert node.asked[1] == {**node.asked[0], "what": "doubt"}

    run(tmp_path, story)


def test_the_leader_hears_whose_copy_was_rotten(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.peer_rots = True
        rows = tuple((s.index, s.bytes, s.digest) for s in manifest_of(5).shards)
        name = (5, stamp_of(5), COUNT)
        report = ShardsWritten(JOB, NO_TAG, Lineage("line"), *name, rows, "00", 0.0, 0.0)
        node.states.fetch_shards(e.FetchShards(JOB, *name, rows, ((PEER,), (PEER,)), report))
        async with asyncio.timeout(WAIT):
            said = await node.reported.get()
        assert isinstance(said, e.ShardsFetched)
        ((index, culprit),) = said.rotten
        assert not said.ok and not said.refused
        assert culprit == PEER and index in range(COUNT)

    run(tmp_path, story)


def test_what_no_peer_has_is_said_once(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        node.peer_answers = False
        async with node.scrubbed():
            node.path(5, 0).unlink()
            kind, fields = await node.event()
            assert (kind, fields["shard"]) == ("checkpoint_damaged", 0)
            node.path(5, 1).unlink()
            kind, fields = await node.event()
            assert (kind, fields["shard"]) == ("checkpoint_damaged", 1)

    run(tmp_path, story)


@pytest.mark.parametrize("how", ["pruned", "came"])
def test_what_needs_no_repair_any_more_is_not_looked_for(tmp_path: Path, how: str) -> None:
    async def story(node: Node) -> None:
        node.make(5)
        node.peer_answers = False
        scrubber = Scrubber(node.states, lambda: [PEER])
        node.path(5, 0).unlink()
        for _ in range(2):
            await scrubber._look_after(set())
            assert scrubber._unrepaired
        if how == "pruned":
            node.store.remove(JOB, 5, stamp_of(5))
        else:
            node.path(5, 0).write_bytes(content(5, 0))
        await scrubber._look_after(set())
        assert not scrubber._unrepaired

    run(tmp_path, story)


def test_what_was_pruned_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    """A checkpoint that was looked at goes, here and on its other holders, before it is mended."""

    async def story(node: Node) -> None:
        node.make(5, 10)
        async with node.scrubbed() as scrubber:
            for store in (node.store, node.peer_store):
                store.remove(JOB, 5, stamp_of(5))
            await scrubber._repair(Damage(manifest_of(5), 1, "was removed"))
            assert node.told.empty()
            node.path(10, 1).unlink()
            kind, fields = await node.event()
            assert (kind, fields["step"]) == ("checkpoint_repaired", 10)

    run(tmp_path, story)


def test_what_is_being_removed_is_not_damaged(tmp_path: Path) -> None:
    """Its folder is still there, and nobody may take it into use any more."""

    async def story(node: Node) -> None:
        node.make(5, 10)
        scrubber = Scrubber(node.states, lambda: [PEER])
        damage = Damage(manifest_of(5), 1, "was removed")
        with node.states.pins.removal(JOB, 5, stamp_of(5)):
            await scrubber._repair(damage)
        assert node.told.empty()
        node.path(5, 1).unlink()
        await scrubber._repair(damage)
        assert (await node.event())[0] == "checkpoint_repaired"

    run(tmp_path, story)


def test_what_is_rotten_and_whole_nowhere_is_no_copy_to_restore_from(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(10)
        node.peer_answers = False
        node.path(10, 0).write_bytes(bytes(len(content(10, 0))))
        with pytest.raises(OperationError, match="shard 0 of step 10 could not be had"):
            await node.states.copies.repair(manifest_of(10), range(COUNT), ((ME, PEER),) * COUNT)
        assert node.store.held(JOB, 10, stamp_of(10)) == (1,)
        node.peer_answers = True
        await node.states.copies.repair(manifest_of(10), range(COUNT), ((PEER,),) * COUNT)
        assert node.store.held(JOB, 10, stamp_of(10)) == (0, 1)

    run(tmp_path, story)


def test_the_quota_takes_the_oldest_and_never_the_newest(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(1, 2, 3, 4)
        async with node.scrubbed(quota_bytes=2 * SIZE) as scrubber:
            await scrubber._keep_quota()
            assert node.steps() == [3, 4]
            with node.states.pins.held(JOB, 3, stamp_of(3)):
                scrubber._quota_bytes = 1
                await scrubber._keep_quota()
                assert node.steps() == [3, 4]
            await scrubber._keep_quota()
            assert node.steps() == [4]

    run(tmp_path, story)


def test_for_the_quota_nothing_goes_before_a_newer_one_is_as_safe(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(1, 2)
        node.make(3, 4, final=False)
        async with node.scrubbed(quota_bytes=SIZE) as scrubber:
            await scrubber._keep_quota()
            assert node.steps() == [2, 4]
            node.peer_store.commit(manifest_of(4))
            await scrubber._keep_quota()
            assert node.steps() == [4]

    run(tmp_path, story)


def test_for_the_quota_nothing_goes_that_may_yet_be_announced(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.records[JOB] = JobRecord(JOB, 1, SPEC, "", "running")
        node.make(1, 2)
        node.make(3, 4, final=False)
        node.peer_store.commit(manifest_of(4))
        async with node.scrubbed(quota_bytes=SIZE) as scrubber:
            # Of step 3 the peer has no manifest yet; with that it would be consistent.
            await scrubber._keep_quota()
            assert node.steps() == [3, 4]
            node.states.prune_store(e.PruneStore(JOB, Lineage("line"), 3))
            await scrubber._keep_quota()
            assert node.steps() == [3, 4]
            node.states.prune_store(e.PruneStore(JOB, Lineage("line"), 4))
            await scrubber._keep_quota()
            assert node.steps() == [4]

    run(tmp_path, story)


@pytest.mark.parametrize("state", ["running", "finished"])
def test_a_lone_node_keeps_its_quota(tmp_path: Path, state: JobState) -> None:
    async def story(node: Node) -> None:
        node.records[JOB] = JobRecord(JOB, 1, SPEC, "", state)
        node.make(1, 2, 3)
        node.peer_answers = False
        async with node.scrubbed(quota_bytes=SIZE) as scrubber:
            if state == "running":
                node.states.prune_store(e.PruneStore(JOB, Lineage("line"), 3))
            await scrubber._keep_quota()
            assert node.steps() == [3]

    run(tmp_path, story)


def test_for_the_quota_nothing_is_left_that_nobody_can_restore(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        def peers() -> list[int]:
            return [item.manifest.step for item in node.peer_store.stored(JOB)]

        node.make(1, 2, 3)
        # Of the first the peer has a part that is nothing without ours, of the second nothing.
        node.peer_store.final_path(JOB, 1, stamp_of(1), 0, COUNT).unlink()
        for index in range(COUNT):
            node.peer_store.final_path(JOB, 2, stamp_of(2), index, COUNT).unlink()
        node.store.remove(JOB, 2, stamp_of(2))
        async with node.scrubbed(quota_bytes=2 * SIZE) as scrubber:
            await scrubber._keep_quota()
            assert (node.steps(), peers()) == ([1, 3], [1, 2, 3])
            scrubber._quota_bytes = SIZE
            await scrubber._keep_quota()
            assert (node.steps(), peers()) == ([3], [3])

    run(tmp_path, story)


def test_the_quota_is_kept_when_a_checkpoint_is_consistent(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(1, 2)
        async with node.scrubbed(quota_bytes=SIZE):
            node.states.prune_store(e.PruneStore(JOB, Lineage("line"), 2))
            async with asyncio.timeout(WAIT):
                pruned = await node.reported.get()
                assert isinstance(pruned, e.StoreChanged) and len(pruned.stored) == 2
                kept = await node.reported.get()
                assert isinstance(kept, e.StoreChanged) and len(kept.stored) == 1
            assert node.steps() == [2]

    run(tmp_path, story)


@pytest.mark.parametrize("whole", [True, False])
def test_a_node_that_could_not_store_lately_keeps_nothing_for_nobody(
    tmp_path: Path, whole: bool
) -> None:
    """Its disk was full: the others have come to step 9, and have pruned what it still has. Only
    what would be all that is left without them stays."""

    async def story(node: Node) -> None:
        node.records[JOB] = JobRecord(JOB, 1, SPEC, "", "running")
        node.make(1, 2, 3)
        node.peer_rots = True
        for step in (1, 2, 3):
            node.peer_store.remove(JOB, step, stamp_of(step))
            if not whole:
                node.path(step, 1).unlink()
        for step in (7, 8, 9):
            made = held_by_peer(step)
            for shard in made.shards:
                data, name = [content(step, shard.index)], (JOB, step, made.stamp, shard.index)
                node.peer_store.put_shard(*name, COUNT, data, shard.digest)
            node.peer_store.commit(made)
        async with node.scrubbed():
            node.states.prune_store(e.PruneStore(JOB, Lineage("line"), 9))
            left = [3] if whole else []
            while (steps := [m.step for m in await reported(node)]) != left:
                assert steps == [1, 2, 3]

    run(tmp_path, story)


def held_by_peer(step: int) -> Manifest:
    return replace(manifest_of(step), holders=((PEER,), (PEER,)))


class StallingStore(LocalStore):
    """A disk on which the first look at what is stored is answered late."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store.root, ME)
        self.looked, self.answer = threading.Event(), threading.Event()

    def stored(self, job: JobId) -> list[Stored]:
        seen = super().stored(job)
        if not self.looked.is_set():
            self.looked.set()
            assert self.answer.wait(WAIT)
        return seen


def test_an_older_look_at_the_store_is_never_told_after_a_newer_one(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.make(1, 2)
        store = node.states.store = StallingStore(node.store)
        async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
            group.create_task(node.states.changed(JOB))
            await asyncio.to_thread(store.looked.wait, WAIT)
            store.remove(JOB, 1, stamp_of(1))
            later = group.create_task(node.states.changed(JOB))
            await asyncio.wait([later], timeout=0.2)  # time to overtake, were that possible
            store.answer.set()
        told = [node.reported.get_nowait() for _ in range(2)]
        counts = [len(event.stored) for event in told if isinstance(event, e.StoreChanged)]
        assert counts == [2, 1]

    run(tmp_path, story)
