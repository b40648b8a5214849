"""Shards that are brought from peers: into the store, or past what another world has stored."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from elasticd.checkpoints import layout
from elasticd.checkpoints.manifest import Shard, Stored
from elasticd.core.words import effects as e
from elasticd.core.words.shards import ShardsWritten
from elasticd.errors import OperationError
from elasticd.types import NO_TAG, Lineage
from tests.unit.shell.storage.storednode import (
    COUNT,
    JOB,
    PEER,
    WAIT,
    Node,
    content,
    manifest_of,
    run,
    stamp_of,
)


def test_what_the_trainer_here_wrote_of_another_state_is_no_copy(tmp_path: Path) -> None:
    """It is asked to hold copies of a checkpoint of which its own shard is another."""

    async def story(node: Node) -> None:
        made = manifest_of(5)
        coming = node.store.folder(JOB) / layout.partial_name(5, made.stamp)
        coming.mkdir(parents=True)
        for index, data in enumerate((b"?" + content(5, 0)[1:], content(5, 1))):
            (coming / layout.shard_name(index, COUNT)).write_bytes(data)
        rows = tuple((s.index, s.bytes, s.digest) for s in made.shards)
        await node.states.copies.pull(JOB, 5, made.stamp, COUNT, rows, ((PEER,), (PEER,)))
        assert [request["index"] for request in node.asked] == [0]
        node.store.commit(made)
        assert node.store.verify(JOB, 5, made.stamp) == []

    run(tmp_path, story)


def test_what_is_asked_for_again_while_it_comes_is_fetched_once(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        made = manifest_of(5)
        rows = tuple((s.index, s.bytes, s.digest) for s in made.shards)
        pull = partial(node.states.copies.pull, JOB, 5, made.stamp, COUNT, rows)
        await asyncio.gather(*(pull(((PEER,), (PEER,))) for _ in range(3)))
        assert sorted(request["index"] for request in node.asked) == [0, 1]
        node.store.commit(made)
        assert node.store.verify(JOB, 5, made.stamp) == []

    run(tmp_path, story)


def test_a_state_that_is_here_in_another_cut_is_had_from_peers(tmp_path: Path) -> None:
    """Two sides of a network may store one state, each cut for its own world."""

    async def story(node: Node) -> None:
        node.make(5)
        data = [bytes([5, index]) * 50 for index in range(3)]
        rows = [(len(d), hashlib.blake2b(d, digest_size=32).hexdigest()) for d in data]
        shards = tuple(Shard(index, *row) for index, row in enumerate(rows))
        other = replace(manifest_of(5), count=3, shards=shards, holders=((PEER,),) * 3)
        fds = await node.states.copies.all_of(other, other.holders, trust=True)
        assert [os.pread(fd, 200, 0) for fd in fds] == data
        assert [os.lseek(fd, 0, os.SEEK_CUR) for fd in fds] == [0, 0, 0]
        for fd in fds:
            os.close(fd)
        node.peer_rots = True
        with pytest.raises(OperationError, match="shard 0 of step 5 could not be had"):
            await node.states.copies.all_of(other, other.holders, trust=True)
        assert node.store.stored(JOB) == [Stored(manifest_of(5), (0, 1))]
        assert node.store.verify(JOB, 5, stamp_of(5)) == []

    run(tmp_path, story)


def test_who_has_the_state_in_other_files_will_never_take_copies(tmp_path: Path) -> None:
    """Asked again and again, it would keep a last checkpoint from its copies for ever."""

    async def story(node: Node) -> None:
        node.make(5)
        data = [bytes([5, index]) * 50 for index in range(3)]
        rows = tuple(
            (n, len(d), hashlib.blake2b(d, digest_size=32).hexdigest()) for n, d in enumerate(data)
        )
        name = (5, stamp_of(5), 3)
        report = ShardsWritten(JOB, NO_TAG, Lineage("line"), *name, rows, "00", 0.0, 0.0)
        node.states.fetch_shards(e.FetchShards(JOB, *name, rows, ((PEER,),) * 3, report))
        async with asyncio.timeout(WAIT):
            said = await node.reported.get()
        assert isinstance(said, e.ShardsFetched)
        assert not said.ok and said.refused and "not a shard of this checkpoint" in said.reason
        assert node.store.stored(JOB) == [Stored(manifest_of(5), (0, 1))]

    run(tmp_path, story)
