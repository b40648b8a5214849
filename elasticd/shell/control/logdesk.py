"""What a job's ranks printed, collected from all nodes for the command line."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from elasticd.core.node import Node
from elasticd.core.words.bulk import WantLog, WantLogStart
from elasticd.core.words.requests.logs import LogBytes, LogCut, LogText, LogUnread, ReadLogs
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
_SPAN_BYTES = 64 * 1024


@dataclass(slots=True)
class _NodeLog:
    """How far one node's log has been read."""

    offset: int
    end: int | None
    """Where to stop; None: never."""
    left_out: str = ""
    """What is yet to be told of before what follows."""
    marks: list[tuple[float, int]] = field(default_factory=list)
    """How long it was when: what of that is yet to be shown, upwards."""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def due(self) -> float:
        """By when what comes next was printed; infinite: that is not known."""
        while self.marks and self.marks[0][1] <= self.offset:
            del self.marks[0]
        return self.marks[0][0] if self.marks and not self.over() else inf

    def until(self, time: float) -> int:
        """The offset up to which it was printed by then; where that is not known, far away."""
        if not self.marks:
            return self.offset + _READ_BYTES
        return max(at for when, at in self.marks if when <= max(time, self.marks[0][0]))

    def over(self) -> bool:
        return self.end is not None and self.offset >= self.end

    def told(self) -> int:
        """Up to where all has been told: of a letter that is cut, its first bytes have not."""
        return self.offset - len(self.decoder.getstate()[0])

    def took(self, data: bytes, until: int) -> bytes:
        """What of ``data``, which lies at the place, is to be shown, ``until`` an offset at
        most."""
        ends = until if self.end is None else min(until, self.end)
        data = data[: max(0, ends - self.offset)]
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
        return on(ReadLogs, self.logs)

    async def logs(self, request: ReadLogs, stream: Stream) -> None:
        job, since = self.node.tables.jobs.known(request.job).id, request.since or 0.0
        places: dict[NodeId, _NodeLog] = {}
        first: set[NodeId] | None = None
        over_at: float | None = None
        while True:
            ended = self.node.records[job].ended
            moved, unread = False, dict[NodeId, str]()
            ranks = await self._last_ranks(job, request.rank)
            # Of a time that is yet to come nothing is to be shown: all there is was printed before.
            nodes = [] if since > self.now() else self._nodes_by_rank(job, request, ranks)
            # Who is there only later has printed nothing before.
            first = {*nodes} if first is None else first
            for node in nodes:
                try:
                    if node not in places:
                        places[node] = await self._place(node, request, node in first, len(nodes))
                        if request.past is not None:
                            said = _said(request, ranks.get(node), node, places[node], b"")
                            await stream.send(said)
                except (ElasticdError, OSError) as error:
                    unread[node] = str(error)
            # What was printed first is shown first, as far as that is known.
            dues = sorted(places[node].due() for node in nodes if node in places)
            due, next_due = [*dues, inf, inf][:2]
            for node in nodes:
                if (place := places.get(node)) is None:
                    continue
                if place.due() > due:
                    moved = True  # its turn comes
                    continue
                until = place.until(next_due)
                try:
                    data = b"" if place.over() else await self._bytes(node, job, place.offset)
                    if not (data or place.over()):
                        gone = (await self._span(node, job)).start - place.offset
                        place.marks.clear()  # nobody waits for what is not there
                        if gone > 0:
                            place.offset, moved = place.offset + gone, True
                            place.left_out = f"{gone} bytes of it went before they were read"
                            until += gone
                except (ElasticdError, OSError) as error:
                    unread[node] = str(error)
                    place.marks.clear()
                    continue
                if place.left_out:
                    await stream.send(LogCut(ranks.get(node), node, place.left_out))
                    place.left_out = ""
                if data := place.took(data, until):
                    moved = True
                    await stream.send(_said(request, ranks.get(node), node, place, data))
            if not moved and (ended or not request.follow):
                # A node whose trainer has just ended may be back with what that printed last.
                over_at = self.now() if over_at is None else over_at
                waits = request.follow and self.now() < over_at + _UNREAD_SECONDS
                if not (waits and unread.keys() & ranks.keys()):
                    asked = ranks.keys() if request.node is None else {request.node}
                    if request.rank is None and (nodes or request.node is not None):
                        unread |= dict.fromkeys(asked - {*nodes}, "it is not there")
                    for node in sorted(unread.keys() & asked):
                        await stream.send(LogUnread(ranks.get(node), node, unread[node]))
                    return
            if not moved:
                await asyncio.sleep(_FOLLOW_SECONDS)

    async def _place(self, node: NodeId, request: ReadLogs, first: bool, nodes: int) -> _NodeLog:
        """Where to begin. ``first``: the node was there when its log was asked for."""
        job, past = self.node.tables.jobs.known(request.job).id, request.past or {}
        if (shown := past.get(node)) is None:
            # Where others were shown before by another daemon, this one has come since.
            tail = request.tail if first and not past else None
            span = await self._span(node, job, request.since or 0.0, tail, marked=nodes > 1)
            start, left_out = span.start, span.left_out
        else:
            span = await self._span(node, job)
            start = max(span.start, shown if span.end is None else min(shown, span.end))
            gone = span.start - shown
            left_out = f"{gone} bytes of it went before they were read" if gone > 0 else ""
        return _NodeLog(start, None if request.follow else span.end, left_out, [*span.marks])

    async def _span(
        self,
        node: NodeId,
        job: JobId,
        since: float = 0.0,
        tail: int | None = None,
        marked: bool = False,
    ) -> LogSpan:
        if node == self.node.me:
            return await self.states.log_span(job, since, tail, marked)
        if not self.neighbours.reaches(node):
            raise OperationError(f"{node} can't be reached")
        fd = nameless_file()
        wanted = WantLogStart(job, since, counted=True, span=True, tail=tail, marks=marked)
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
        self, job: JobId, request: ReadLogs, ranks: dict[NodeId, int]
    ) -> list[NodeId]:
        if (rank := request.rank) is not None:
            if request.follow and not ranks:
                return []  # no world has been formed yet: it is waited for
            if rank not in ranks.values():
                raise OperationError(f"job {job} has had no rank {rank}")
            return [node for node, own in ranks.items() if own == rank]
        me = self.node.me
        there = [me, *(node for node in self.node.liveness.living() if node != me)]
        if (wanted := request.node) is None:
            return there
        if wanted not in {*there, *ranks, *self.node.tables.nodes.records}:
            raise OperationError(f"there is no node {wanted}")
        return [wanted] if wanted in there else []

    async def _last_ranks(self, job: JobId, wanted: int | None) -> dict[NodeId, int]:
        """Of the last world; of one before, if a rank is ``wanted`` that it doesn't have."""
        members = await self.events.last_members(job, 1 + (wanted or 0))
        return {NodeId(node): rank for rank, node in enumerate(members)}


def _said(
    request: ReadLogs, rank: int | None, node: NodeId, place: _NodeLog, data: bytes
) -> LogText | LogBytes:
    text = "" if request.raw else place.decoder.decode(data)
    if request.past is None:
        return LogBytes(rank, node, data) if request.raw else LogText(rank, node, text)
    at = place.told()
    return LogBytes(rank, node, data, at) if request.raw else LogText(rank, node, text, at)
