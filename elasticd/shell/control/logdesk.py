"""What a job's ranks printed, collected from all nodes for the command line."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticd.core.node import Node
from elasticd.core.words import requests as r
from elasticd.core.words.bulk import WantLog, WantLogStart
from elasticd.errors import ElasticdError, OperationError
from elasticd.shell.children.logspan import LogSpan
from elasticd.shell.clock import unix_seconds
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
_SPAN_BYTES = 4096


@dataclass(slots=True)
class _NodeLog:
    """How far one node's log has been read."""

    offset: int
    end: int | None
    """Where to stop; None: never."""
    left_out: str = ""
    """What is yet to be told of before what follows."""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def over(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def took(self, data: bytes) -> bytes:
        """What of ``data``, which lies at the place, is to be shown."""
        if self.end is not None:
            data = data[: max(0, self.end - self.offset)]
        self.offset += len(data)
        return data


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
        places: dict[NodeId, _NodeLog] = {}
        first: set[NodeId] | None = None
        over_at: float | None = None
        while True:
            ended = self.node.records[job].ended
            moved, unread = False, dict[NodeId, str]()
            ranks = await self._last_ranks(job)
            # Of a time that is yet to come nothing is to be shown: all there is was printed before.
            nodes = [] if since > self.now() else self._nodes_by_rank(job, request.rank, ranks)
            # Who is there only later has printed nothing before.
            first = {*nodes} if first is None else first
            for node in nodes:
                try:
                    if (place := places.get(node)) is None:
                        tail = request.tail if node in first else None
                        span = await self._span(node, job, since, tail)
                        end = None if request.follow else span.end
                        place = places[node] = _NodeLog(span.start, end, span.left_out)
                    data = b"" if place.over() else await self._bytes(node, job, place.offset)
                    if not (data or place.over()):
                        gone = (await self._span(node, job)).start - place.offset
                        if gone > 0:
                            place.offset, moved = place.offset + gone, True
                            place.left_out = f"{gone} bytes of it went before they were read"
                except (ElasticdError, OSError) as error:
                    unread[node] = str(error)
                    continue
                if place.left_out:
                    await stream.send(r.LogCut(ranks.get(node), node, place.left_out))
                    place.left_out = ""
                if data := place.took(data):
                    moved = True
                    text = "" if request.raw else place.decoder.decode(data)
                    rank = ranks.get(node)
                    said = r.LogText(rank, node, text)
                    await stream.send(r.LogBytes(rank, node, data) if request.raw else said)
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

    async def _span(
        self, node: NodeId, job: JobId, since: float = 0.0, tail: int | None = None
    ) -> LogSpan:
        if node == self.node.me:
            return await self.states.log_span(job, since, tail)
        if not self.neighbours.reaches(node):
            raise OperationError(f"{node} can't be reached")
        fd = nameless_file()
        wanted = WantLogStart(job, since, counted=True, span=True, tail=tail)
        try:
            await self.neighbours.fetch(node, wanted, fd)
            return LogSpan.decoded(os.pread(fd, _SPAN_BYTES, 0))
        except ValueError:
            raise OperationError(f"{node} does not say where its log begins") from None
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
