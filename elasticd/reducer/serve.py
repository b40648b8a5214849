"""Answers a trainer's requests with collectives, in order, until the trainer closes the socket."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.errors import ProtocolError
from elasticd.ipc.memory import SharedMemory
from elasticd.ipc.plan import EXACT, WALKING_FLOATS, VectorLayout
from elasticd.ipc.records import MAX_PLAN_BYTES, NO_PLAN, RECORD_BYTES, Kind, Record
from elasticd.reducer.greeting import Greeting, Toward
from elasticd.reducer.ring import (
    LANES,
    ONE_WAY_BYTES,
    SEAL_FLOATS,
    Naps,
    check_lanes,
    check_seals,
    lanes_of,
)
from elasticd.reducer.walk import Walk

# One collective is under way while the one before is finished: more only costs memory.
_LOOKAHEAD = 2


@dataclass(frozen=True, slots=True)
class _Flight:
    """A collective that was begun: ``result`` is not evaluated yet."""

    record: Record
    layout: VectorLayout | None
    result: mx.array


class Server:
    """One generation of one rank."""

    def __init__(
        self,
        group: mx.distributed.Group,
        generation: bytes,
        reduction: str,
        memory: SharedMemory,
        connection: socket.socket,
        walk: Walk | None,
    ) -> None:
        """``group`` is up. ``walk`` makes sums of chunks that are not small; None: they are made as
        those of small ones. All ranks have one or none has."""
        self._group = group
        self._rank, self._size = group.rank(), group.size()
        self._naps = Naps()
        self._generation = generation
        self._reduction = reduction
        self._memory = memory
        self._socket = connection
        self._walk = walk
        self._layout: VectorLayout | None = None
        self._serial = 0

    def prove(self, greeting: Greeting | None) -> None:
        """Check in one small collective that every rank is a member of the same generation, and
        with a ``greeting`` that both neighbours are ranks of it.

        Raises:
            StrangerError: a neighbour is none.
            ProtocolError, RuntimeError: a rank is not, or the ring does not work.
        """
        record = Record(Kind.FORM, 0, 0, 0, 0, self._generation)
        self._naps.allow(True)
        if greeting is None:
            self._finish(_Flight(record, None, self._gather_seal(record)))
            return
        greeting.meet(self._group)
        shown = greeting.digest(self._rank, Toward.LEFT)
        result = self._gather_seal(record, shown)
        mx.eval(result)
        rows = np.asarray(result).reshape(self._size, -1)
        greeting.check([row[SEAL_FLOATS:-SEAL_FLOATS].tobytes() for row in rows])
        check_seals(rows, self._seals(record, NO_PLAN, 0))

    def run(self) -> None:
        """Serve until the trainer's end of the socket closes.

        Raises:
            ProtocolError: a wrong record, or ranks that disagree.
            RuntimeError: a collective failed; MLX arrays are garbage from then on.
        """
        flights: deque[_Flight] = deque()
        while True:
            record = self._next_record(wait=not flights)
            if record is not None and record.kind is Kind.PLAN:
                self._layout = VectorLayout.decode(self._read(record.extent), self._reduction)
            elif record is not None and self._walks(record):
                while flights:
                    self._land(flights.popleft())
                self._walk_around(record)
            elif record is not None:
                if self._walk is not None:
                    self._walk.settle()
                flights.append(self._flight(record))
                self._start(flights)
            if flights and (record is None or len(flights) == _LOOKAHEAD):
                self._land(flights.popleft())

    def _land(self, flight: _Flight) -> None:
        self._finish(flight)
        self._socket.sendall(flight.record.pack())

    def _walks(self, record: Record) -> bool:
        if self._walk is None or self._layout is None or record.kind is not Kind.CHUNK:
            return False
        start, end = self._layout.bounds(record.bucket)
        return end - start >= WALKING_FLOATS

    def _walk_around(self, record: Record) -> None:
        assert self._walk is not None and self._layout is not None
        self._naps.allow(True)
        self._walk.reduce(record, self._layout)
        self._socket.sendall(record.pack())

    def _next_record(self, wait: bool) -> Record | None:
        try:
            data = self._socket.recv(RECORD_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        if not data:
            raise EOFError
        record = Record.unpack(data + self._read(RECORD_BYTES - len(data)))
        if record.generation != self._generation or record.serial != self._serial + 1:
            raise ProtocolError(f"a record out of order, after {self._serial}: {record}")
        if record.kind is Kind.PLAN and record.extent > MAX_PLAN_BYTES:
            raise ProtocolError(f"a plan of {record.extent} bytes")
        self._serial = record.serial
        return record

    def _read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            more = self._socket.recv(length - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def _flight(self, record: Record) -> _Flight:
        if record.kind is Kind.BARRIER:
            return _Flight(record, None, self._gather_seal(record))
        if record.kind is Kind.CHUNK and self._layout is not None:
            send = self._gather_chunk if self._reduction == EXACT else self._sum_chunk
            return _Flight(record, self._layout, send(record, self._layout))
        raise ProtocolError(f"a record that cannot be served: {record}")

    def _start(self, flights: Sequence[_Flight]) -> None:
        """The last of them; those before it are under way."""
        bytes_per_rank = max(flight.result.nbytes for flight in flights) // self._size
        self._naps.allow(bytes_per_rank < ONE_WAY_BYTES)
        mx.async_eval(flights[-1].result)  # type: ignore[no-untyped-call]

    def _gather_seal(self, record: Record, shown: bytes = b"") -> mx.array:
        seal = record.seal(NO_PLAN, 0, self._rank)
        row = np.frombuffer(seal + shown + seal, np.float32)
        return mx.distributed.all_gather(mx.array(row), group=self._group)

    def _gather_chunk(self, record: Record, layout: VectorLayout) -> mx.array:
        start, end = layout.bounds(record.bucket)
        framed = self._memory.framed(record.extent, (end - start) * layout.width, SEAL_FLOATS)
        seal = np.frombuffer(record.seal(layout.digest, end - start, self._rank), np.float32)
        framed[:SEAL_FLOATS] = framed[-SEAL_FLOATS:] = seal
        return mx.distributed.all_gather(mx.array(framed), group=self._group)

    def _sum_chunk(self, record: Record, layout: VectorLayout) -> mx.array:
        start, end = layout.bounds(record.bucket)
        framed = self._memory.framed(record.extent, end - start, LANES)
        framed[:LANES] = framed[-LANES:] = lanes_of(record.seal(layout.digest, end - start, 0))
        return mx.distributed.all_sum(mx.array(framed), group=self._group)

    def _finish(self, flight: _Flight) -> None:
        mx.eval(flight.result)
        result = np.asarray(flight.result)  # a view
        record, layout = flight.record, flight.layout
        if layout is None:
            check_seals(result.reshape(self._size, -1), self._seals(record, NO_PLAN, 0))
            return
        start, end = layout.bounds(record.bucket)
        into = self._memory.payload(record.extent)[: end - start]
        if self._reduction == EXACT:
            rows = result.reshape(self._size, -1)
            check_seals(rows, self._seals(record, layout.digest, end - start))
            add_parts(rows[:, SEAL_FLOATS:-SEAL_FLOATS], layout, into)
        else:
            check_lanes(result, record.seal(layout.digest, end - start, 0), self._size)
            into[:] = result[LANES:-LANES]

    def _seals(self, record: Record, plan: bytes, length: int) -> list[bytes]:
        return [record.seal(plan, length, rank) for rank in range(self._size)]


def add_parts(rows: NDArray[np.float32], layout: VectorLayout, into: NDArray[np.float32]) -> None:
    """Add the parts of all ranks in the order of the tree; float32, so the same bits everywhere.

    Args:
        rows: [ranks, width * n]: each rank's parts one behind the other. Used as scratch space.
        layout: says which nodes the parts are.
        into: [n], gets the sum.
    """
    parts = [part for row in rows for part in row.reshape(layout.width, len(into))]
    if not layout.additions:
        into[:] = parts[layout.total]
        return
    for left, right in layout.additions[:-1]:
        np.add(parts[left], parts[right], out=parts[left])
    left, right = layout.additions[-1]
    np.add(parts[left], parts[right], out=into)
