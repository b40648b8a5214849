"""What a job's ranks printed, collected from all nodes for the command line."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass

from elasticd.core.node import Node
from elasticd.core.words import requests as r
from elasticd.core.words.bulk import WantLog, WantLogStart
from elasticd.errors import ElasticdError, OperationError
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.logtail import Tail
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

_FOLLOW_SECONDS = 0.3
_UNREAD_SECONDS = 5.0
"""So long a job's end is followed where a node's log can't be read."""
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class LogDesk:
    """Handles the ``logs`` request of docs/protocols.md §3."""

    node: Node
    states: States
    events: EventReading
    neighbours: Neighbours
    now: Callable[[], float] = unix_seconds

    def handlers(self) -> Handlers:
        return on(r.ReadLogs, self.logs)

    async def logs(self, request: r.ReadLogs, stream: Stream) -> None:
        job, since = self.node.tables.jobs.known(request.job).id, request.since or 0.0
        offsets: dict[NodeId, int] = {}
        decoders: dict[NodeId, codecs.IncrementalDecoder] = {}
        tails: dict[NodeId, Tail] | None = None if request.tail is None else {}
        ranks: dict[NodeId, int] = {}
        over_at: float | None = None

        async def send(node: NodeId, data: bytes) -> None:
            rank = ranks.get(node)
            fresh = codecs.getincrementaldecoder("utf-8")("replace")
            decoder = decoders.setdefault(node, fresh)
            for start in range(0, len(data), _READ_BYTES):
                part = data[start : start + _READ_BYTES]
                said = r.LogText(rank, node, "" if request.raw else decoder.decode(part))
                await stream.send(r.LogBytes(rank, node, part) if request.raw else said)

        while True:
            ended = self.node.records[job].ended
            moved, unread = False, dict[NodeId, str]()
            ranks = await self._last_ranks(job)
            # Of a time that is yet to come nothing is to be shown: all there is was printed before.
            nodes = [] if since > self.now() else self._nodes_by_rank(job, request.rank, ranks)
            for node in nodes:
                try:
                    if node not in offsets:
                        offsets[node] = await self._start(node, job, since)
                    data = await self._bytes(node, job, offsets[node])
                    if not data and offsets[node] < (start := await self._start(node, job)):
                        # Parts were removed faster than they were read.
                        offsets[node], moved = start, True
                except (ElasticdError, OSError) as error:
                    unread[node] = str(error)
                    continue
                if not data:
                    continue
                moved = True
                offsets[node] += len(data)
                if tails is not None:
                    tails.setdefault(node, Tail(request.tail or 0)).add(data)
                else:
                    await send(node, data)
            if not moved and tails is not None:
                for node, tail in tails.items():
                    await send(node, tail.take())
                tails = None
            if not moved and (ended or not request.follow):
                # A node whose trainer has just ended may be back with what that printed last.
                over_at = self.now() if over_at is None else over_at
                waits = request.follow and self.now() < over_at + _UNREAD_SECONDS
                if not (waits and unread.keys() & ranks.keys()):
                    if request.rank is None and nodes:
                        unread |= dict.fromkeys(ranks.keys() - {*nodes}, "it is not there")
                    for node in sorted(unread.keys() & ranks.keys()):
                        await stream.send(r.LogUnread(ranks[node], node, unread[node]))
                    return
            if not moved:
                await asyncio.sleep(_FOLLOW_SECONDS)

    async def _start(self, node: NodeId, job: JobId, since: float = 0.0) -> int:
        if node == self.node.me:
            return await self.states.log_start(job, since, counted=True)
        if not self.neighbours.reaches(node):
            raise OperationError(f"{node} can't be reached")
        fd = nameless_file()
        try:
            await self.neighbours.fetch(node, WantLogStart(job, since, counted=True), fd)
            return int(os.pread(fd, 20, 0))
        except (ElasticdError, ValueError):
            return 0  # an older daemon doesn't know; rather too much than too little
        finally:
            os.close(fd)

    async def _bytes(self, node: NodeId, job: JobId, offset: int) -> bytes:
        if node == self.node.me:
            return await self.states.log_bytes(job, offset, _READ_BYTES, counted=True)
        if not self.neighbours.reaches(node):
            raise OperationError(f"{node} can't be reached")
        fd = nameless_file()
        try:
            await self.neighbours.fetch(node, WantLog(job, offset, counted=True), fd)
            return os.pread(fd, _READ_BYTES, 0)
        finally:
            os.close(fd)

    def _nodes_by_rank(
        self, job: JobId, rank: int | None, ranks: dict[NodeId, int]
    ) -> list[NodeId]:
        if rank is not None:
            if rank not in ranks.values():
                raise OperationError(f"job {job} has no rank {rank} now")
            return [node for node, own in ranks.items() if own == rank]
        me = self.node.me
        return [me, *(node for node in self.node.liveness.living() if node != me)]

    async def _last_ranks(self, job: JobId) -> dict[NodeId, int]:
        members = await self.events.last_members(job)
        return {NodeId(node): rank for rank, node in enumerate(members)}
