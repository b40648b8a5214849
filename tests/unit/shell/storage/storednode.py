"""A node with checkpoints, and a peer that has every shard."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from elasticd.checkpoints import layout, peer
from elasticd.checkpoints.manifest import Manifest, Shard
from elasticd.checkpoints.questions import Question
from elasticd.checkpoints.sequential import write_all
from elasticd.checkpoints.store import LocalStore
from elasticd.core.words import effects as e
from elasticd.core.words.bulk import WANTS
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError
from elasticd.shell.children.children import Children
from elasticd.shell.children.server import ChildServer
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.states import States
from elasticd.types import NO_TAG, JobId, Lineage, NodeId, Stamp

JOB, ME, PEER = JobId("job-1"), NodeId("me"), NodeId("peer")
COUNT = 2
SIZE = 100 * COUNT
"""Of a checkpoint, in bytes."""
WAIT = 20.0


SPEC = {
    "job": {"name": "job", "entrypoint": "train.py"},
    "batch": {"global": 8, "micro": 1},
    "train": {"steps": 100},
}


def content(step: int, index: int) -> bytes:
    return bytes([step, index]) * 50


def stamp_of(step: int) -> Stamp:
    return Stamp(f"{step:032x}"[::-1])


def manifest_of(step: int) -> Manifest:
    data = [content(step, index) for index in range(COUNT)]
    shards = tuple(
        Shard(i, len(d), hashlib.blake2b(d, digest_size=32).hexdigest()) for i, d in enumerate(data)
    )
    return Manifest(
        *(JOB, Lineage("line"), None, step, stamp_of(step), NO_TAG, step * 64, 8, COUNT),
        *(shards, ((ME, PEER), (ME, PEER)), "00", float(step)),
    )


class Node:
    """A node's states with a peer that has every shard, and the events that were told."""

    def __init__(self, home: Path) -> None:
        self.told: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.peer_answers, self.peer_rots = True, False
        self.peer_store = LocalStore(home / "peer", PEER)
        self.peer_store.root.mkdir(exist_ok=True)
        self.asked: list[dict[str, Any]] = []
        self.reported: asyncio.Queue[e.Inward] = asyncio.Queue()
        neighbours = Neighbours(ME, self._fetch, str, lambda: [PEER])
        # No trainer is asked here.
        server = cast(ChildServer, None)
        self.records: dict[JobId, JobRecord] = {}
        children = Children(home, "127.0.0.1", server, self._record, self.reported.put_nowait)
        self.states = States(
            home, neighbours, children, self._record, self.reported.put_nowait,
            lambda kind, job, reason, fields: self.told.put_nowait((kind, fields)),
        )  # fmt: skip

    def _record(self, job: JobId) -> JobRecord:
        if job not in self.records:
            raise OperationError(f"no job {job}")
        return self.records[job]

    async def _fetch(self, address: str, request: dict[str, Any], sink: int) -> int:
        if not self.peer_answers:
            raise OperationError(f"{address} is away")
        wanted = WANTS.decode(request)
        if isinstance(wanted, Question):
            data = peer.answer(self.peer_store, wanted)
        else:
            self.asked.append(request)
            data = content(request["step"], request["index"])
            data = bytes(len(data)) if self.peer_rots else data
        write_all(sink, data)
        return len(data)

    @property
    def store(self) -> LocalStore:
        return self.states.store

    def make(self, *steps: int, final: bool = True) -> None:
        """On both nodes; without ``final`` the peer has the shards and not the manifest."""
        for step, store in itertools.product(steps, (self.store, self.peer_store)):
            made = manifest_of(step)
            for shard in made.shards:
                data = content(step, shard.index)
                store.put_shard(JOB, step, made.stamp, shard.index, COUNT, [data], shard.digest)
            if final or store is self.store:
                store.commit(made)

    def steps(self) -> list[int]:
        return [m.step for m in self.store.manifests(JOB)]

    def path(self, step: int, index: int) -> Path:
        folder = self.store.folder(JOB) / layout.final_name(step, stamp_of(step))
        return folder / layout.shard_name(index, COUNT)

    async def event(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(WAIT):
            return await self.told.get()

    @asynccontextmanager
    async def scrubbed(self, **settings: Any) -> AsyncIterator[Scrubber]:
        scrubber = Scrubber(self.states, lambda: [PEER], **settings)
        scrubber.start()
        try:
            await scrubber.watched.wait()
            yield scrubber
        finally:
            await scrubber.close()


def run(tmp_path: Path, story: Callable[[Node], Any]) -> None:
    async def told() -> None:
        await story(Node(tmp_path))

    asyncio.run(told())
