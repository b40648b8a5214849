"""The trainer's side of a reduction: vectors go to the reducer in chunks and come back reduced.

A request is a record on a socket and, for a chunk, a slot of shared memory; the reducer answers
with the same record once the slot holds the reduced chunk (docs/protocols.md, section 2). While
the reducer works on a chunk the trainer fills the next slot and empties the one before. All
waiting is in poll, on the reducer and on the descriptor by which the daemon interrupts.
"""

from __future__ import annotations

import os
import select
import socket
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticd.errors import GenerationLost
from elasticd.ipc.memory import SharedMemory
from elasticd.ipc.memoryfile import SLOTS, create_memory
from elasticd.ipc.plan import EXACT, FAST, ChunkPlan, VectorLayout
from elasticd.ipc.records import RECORD_BYTES, Kind, Record, generation_hash
from elasticd.types import Range, Tag

__all__ = ["ChunkPlan", "ReducerLink", "create_memory"]


class ReducerLink:
    """One generation's way into the world's collectives.

    Every member must make the same calls in the same order. After :class:`GenerationLost` only
    :meth:`close` is of use. One thread uses it.
    """

    def __init__(
        self,
        memory_fd: int,
        socket_fd: int,
        generation: Tag,
        rank: int,
        size: int,
        reduction: str,
    ) -> None:
        """Take ownership of the chunk memory and the data socket.

        ``reduction`` is ``"exact"`` or ``"fast"``.

        Raises:
            OSError, ValueError: the descriptors or the numbers cannot be used.
        """
        self._socket = socket.socket(fileno=socket_fd)
        try:
            if reduction not in (EXACT, FAST) or not 0 <= rank < size:
                raise ValueError(f"no rank {rank} of {size} in {reduction!r}")
            self._memory = SharedMemory(memory_fd)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise
        finally:
            os.close(memory_fd)
        self._generation = generation_hash(generation)
        self._rank, self._size, self._reduction = rank, size, reduction
        self._layout: VectorLayout | None = None
        self._serial = 0
        self._lost: str | None = None

    def reduce(
        self,
        step: int,
        plan: ChunkPlan,
        parts: Mapping[Range, Sequence[NDArray[np.float32]]],
        out: NDArray[np.float32],
        interrupt_fd: int,
    ) -> None:
        """Sum a vector over the world, into ``out``.

        Args:
            step: the step whose gradient this is.
            plan: what every rank submits; the same on every rank.
            parts: for each node in ``plan.parts[rank]`` its sum, as flat float32 arrays that laid
                end to end have ``len(out)`` elements. In ``fast``: one entry, or none for zeros.
            out: the sum over all grains, flat float32. Its content is of no use after an error.
            interrupt_fd: gives up the generation when it becomes readable.

        Raises:
            GenerationLost: the reducer went, answered wrongly, or the interrupt came.
            ValueError: plan, parts and ``out`` do not fit together.
        """
        self._check_alive()
        layout = self._layout_for(plan, len(out))
        pieces = [_Pieces(part, len(out)) for part in self._own(layout, parts)]
        if layout is not self._layout:
            self._announce(step, layout, interrupt_fd)
        flying: list[Record] = []
        for bucket in range(layout.chunks):
            if len(flying) == SLOTS:
                self._collect(flying.pop(0), layout, out, interrupt_fd)
            record = self._record(Kind.CHUNK, step, bucket, bucket % SLOTS)
            self._fill(record.extent, layout.bounds(bucket), pieces)
            self._send(record.pack(), interrupt_fd)
            flying.append(record)
        for record in flying:
            self._collect(record, layout, out, interrupt_fd)

    def barrier(self, step: int, interrupt_fd: int) -> None:
        """Return when every member has called ``barrier(step)``.

        Raises:
            GenerationLost: as in :meth:`reduce`, or a member is at another step.
        """
        self._check_alive()
        record = self._record(Kind.BARRIER, step, 0, 0)
        self._send(record.pack(), interrupt_fd)
        self._answer(record, interrupt_fd)

    def close(self) -> None:
        """Leave the generation: the reducer ends when it sees the socket close. May be repeated."""
        self._lost = self._lost or "this rank has left the generation"
        self._socket.close()
        if hasattr(self, "_memory"):
            del self._memory

    def _layout_for(self, plan: ChunkPlan, length: int) -> VectorLayout:
        known = self._layout
        if known is not None and known.plan == plan and known.length == length:
            return known
        if len(plan.parts) != self._size:
            raise ValueError(f"a plan for {len(plan.parts)} ranks in a world of {self._size}")
        return VectorLayout.of(self._reduction, length, plan)

    def _own(
        self, layout: VectorLayout, parts: Mapping[Range, Sequence[Any]]
    ) -> list[Sequence[Any]]:
        if layout.reduction == FAST:
            if len(parts) > 1:
                raise ValueError(f"{len(parts)} sums were given, fast takes one")
            return list(parts.values())
        wanted = layout.plan.parts[self._rank]
        if set(wanted) != set(parts):
            raise ValueError(f"the plan wants {wanted}, given are {tuple(parts)}")
        return [parts[node] for node in wanted]

    def _announce(self, step: int, layout: VectorLayout, interrupt_fd: int) -> None:
        body = layout.encode()
        self._send(self._record(Kind.PLAN, step, 0, len(body)).pack() + body, interrupt_fd)
        self._layout = layout

    def _record(self, kind: Kind, step: int, bucket: int, extent: int) -> Record:
        self._serial += 1
        return Record(kind, self._serial, step, bucket, extent, self._generation)

    def _fill(self, slot: int, bounds: tuple[int, int], pieces: list[_Pieces]) -> None:
        payload = self._memory.payload(slot)
        start, end = bounds
        if not pieces and self._reduction == FAST:
            payload[: end - start] = 0
        for index, piece in enumerate(pieces):
            base = index * (end - start)
            piece.copy(start, end, payload[base : base + end - start])

    def _collect(
        self, record: Record, layout: VectorLayout, out: NDArray[np.float32], interrupt_fd: int
    ) -> None:
        self._answer(record, interrupt_fd)
        start, end = layout.bounds(record.bucket)
        out[start:end] = self._memory.payload(record.extent)[: end - start]

    def _answer(self, record: Record, interrupt_fd: int) -> None:
        data = b""
        while len(data) < RECORD_BYTES:
            self._wait(select.POLLIN, interrupt_fd)
            try:
                more = self._socket.recv(RECORD_BYTES - len(data))
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._lose(f"the reducer's socket broke: {error}") from error
            if not more:
                raise self._lose("the reducer has gone")
            data += more
        if data != record.pack():
            raise self._lose(f"the reducer answered {data.hex()} to {record}")

    def _send(self, data: bytes, interrupt_fd: int) -> None:
        while data:
            self._wait(select.POLLOUT, interrupt_fd)
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._lose(f"the reducer's socket broke: {error}") from error

    def _wait(self, event: int, interrupt_fd: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        poll.register(interrupt_fd, select.POLLIN)
        if any(fd == interrupt_fd for fd, _ in poll.poll()):
            raise self._lose("the daemon ended the generation")

    def _lose(self, reason: str) -> GenerationLost:
        self._lost = reason
        return GenerationLost(reason)

    def _check_alive(self) -> None:
        if self._lost is not None:
            raise GenerationLost(self._lost)


class _Pieces:
    """A vector that lies in several arrays."""

    def __init__(self, arrays: Sequence[NDArray[np.float32]], length: int) -> None:
        self._arrays = [array for array in arrays if array.size]
        self._starts = list(accumulate(map(len, self._arrays), initial=0))
        if self._starts[-1] != length:
            raise ValueError(f"a part has {self._starts[-1]} elements, the vector {length}")
        if any(array.dtype != np.float32 or array.ndim != 1 for array in self._arrays):
            raise ValueError("a part is not made of flat float32 arrays")

    def copy(self, start: int, end: int, into: NDArray[np.float32]) -> None:
        """Copy elements ``start`` to ``end`` into ``into``."""
        at = start
        index = bisect_right(self._starts, start) - 1
        while at < end:
            array, base = self._arrays[index], self._starts[index]
            stop = min(end, base + len(array))
            into[at - start : stop - start] = array[at - base : stop - base]
            at, index = stop, index + 1
