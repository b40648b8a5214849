"""Makes sums along the ring, with MLX's ``send`` and ``recv`` between neighbours.

Which sums travel is :mod:`elasticd.recovery.walk`'s. Here each is a message with a tag at both
ends. A message is one evaluation: of several in one, MLX may issue any first. A rank sends in a
thread of its own, since a send ends only when the neighbour takes it, and all send at once. So
nobody waits for a neighbour that waits for it. Messages only go to the right: no thread of MLX
both sends and receives, and all may sleep while they wait.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.errors import ProtocolError
from elasticd.ipc.memory import SharedMemory
from elasticd.ipc.plan import EXACT, VectorLayout
from elasticd.ipc.records import Kind, Record, describe_seal
from elasticd.recovery.walk import Hop, chain, hops
from elasticd.reducer.ring import SEAL_FLOATS
from elasticd.types import Range

PIECE_FLOATS = 512 << 10
"""Of a section: the next rank adds one piece while the one behind it is on its way."""
_AHEAD = 2
"""So many messages are received before they are looked at."""

Floats = NDArray[np.float32]


class _Message:
    """Memory of MLX that numpy may write: a tag, a sum's elements, a tag."""

    def __init__(self, array: mx.array) -> None:
        """``array`` is evaluated, and nobody else's."""
        self._array = array
        self._floats = np.frombuffer(memoryview(array), np.float32)  # type: ignore[arg-type]

    @property
    def data(self) -> Floats:
        return self._floats[SEAL_FLOATS:-SEAL_FLOATS]

    def sealed(self, seal: bytes) -> mx.array:
        """It with this tag, to be sent."""
        tag = np.frombuffer(seal, np.float32)
        self._floats[:SEAL_FLOATS] = self._floats[-SEAL_FLOATS:] = tag
        return self._array

    def check(self, seal: bytes, rank: int) -> None:
        """Raise ProtocolError unless this tag is at both ends."""
        for end in (self._floats[:SEAL_FLOATS], self._floats[-SEAL_FLOATS:]):
            if (data := end.tobytes()) != seal:
                raise ProtocolError(
                    f"rank {rank} sent {describe_seal(data)}, expected {describe_seal(seal)}"
                )


class _Sender:
    """Sends to the right, in order, in a thread of its own."""

    def __init__(self, group: mx.distributed.Group, on_broken: Callable[[Exception], None]) -> None:
        """``on_broken`` is called in the thread if a send fails; never returns."""
        self._group, self._on_broken = group, on_broken
        self._queue: queue.Queue[tuple[_Message | Floats, bytes]] = queue.Queue()
        self._thread: threading.Thread | None = None

    def put(self, what: _Message | Floats, seal: bytes) -> None:
        """Send it under this tag: a message, or shared memory with room for tags at its ends, which
        is copied in the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
            self._thread.start()
        self._queue.put((what, seal))

    def settle(self) -> None:
        """Return when all is handed over."""
        self._queue.join()

    def _run(self) -> None:
        right = (self._group.rank() + 1) % self._group.size()
        stream = mx.new_stream(mx.cpu)
        try:
            while True:
                what, seal = self._queue.get()
                message = what if isinstance(what, _Message) else _Message(mx.array(what))
                array = message.sealed(seal)
                mx.eval(mx.distributed.send(array, right, group=self._group, stream=stream))
                del what, message, array
                self._queue.task_done()
        except Exception as error:
            self._on_broken(error)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One chunk on its way: ``pieces`` has, per section, first and last (excluded) element of
    each of its pieces."""

    record: Record
    layout: VectorLayout
    length: int
    pieces: tuple[tuple[Range, ...], ...]

    @classmethod
    def of(cls, record: Record, layout: VectorLayout) -> _Chunk:
        start, end = layout.bounds(record.bucket)
        sections = _cut((0, end - start), len(layout.plan.parts))
        pieces = tuple(
            tuple(_cut(each, -(-(each[1] - each[0]) // PIECE_FLOATS))) for each in sections
        )
        return cls(record, layout, end - start, pieces)

    def seal(self, number: int, length: int, rank: int) -> bytes:
        """The tag of the message ``number`` that ``rank`` sends."""
        message = replace(self.record, kind=Kind.WALK, bucket=number)
        return message.seal(self.layout.digest, length, rank)


class Walk:
    """One rank's part in it."""

    def __init__(
        self,
        group: mx.distributed.Group,
        memory: SharedMemory,
        on_broken: Callable[[Exception], None],
    ) -> None:
        """``on_broken`` is called in another thread if that fails to send; never returns."""
        self._group, self._memory = group, memory
        self._sender = _Sender(group, on_broken)
        self._rank, self._size = group.rank(), group.size()
        self._hops: tuple[bytes, tuple[Hop, ...]] = (b"", ())

    def reduce(self, record: Record, layout: VectorLayout) -> None:
        """Sum one chunk in its slot.

        Raises:
            ProtocolError: the left neighbour does something else.
            RuntimeError: it has gone.
        """
        chunk = _Chunk.of(record, layout)
        if self._hops[0] != layout.digest:
            self._hops = layout.digest, self._way(layout)
        slot, sent = record.extent, 0
        payload = self._memory.payload(slot)
        arrivals = self._arrivals(chunk, self._hops[1])
        for hop in self._hops[1]:
            mine = {node: index * chunk.length for index, node in enumerate(hop.own)}
            for start, end in chunk.pieces[hop.section]:
                sums = {node: next(arrivals) for node in hop.takes}
                own = {node: payload[base + start : base + end] for node, base in mine.items()}
                _add(hop, sums, own)
                for node in hop.sends:
                    what: _Message | Floats | None = sums.get(node)
                    if what is None:
                        base = mine[node] + start
                        what = self._memory.framed(slot, end - start, SEAL_FLOATS, base)
                        if hop.whole:  # it doesn't come back, which would show that it was sent
                            what = _Message(mx.array(what))
                    self._sender.put(what, chunk.seal(sent, end - start, self._rank))
                    sent += 1
                if hop.whole and sums:  # else it is in its place, as this rank's only part
                    (total,) = sums.values()
                    payload[start:end] = total.data

    def _way(self, layout: VectorLayout) -> tuple[Hop, ...]:
        if layout.reduction == EXACT:
            return hops(layout.plan.parts, layout.plan.grains, self._rank)
        return chain(self._size, self._rank)

    def settle(self) -> None:
        """Return when all that was sent is handed over: no other collective may mix with it."""
        self._sender.settle()

    def _arrivals(self, chunk: _Chunk, steps: Sequence[Hop]) -> Iterator[_Message]:
        """What comes from the left, in order, checked."""
        lengths = [
            end - start
            for hop in steps
            for start, end in chunk.pieces[hop.section]
            for _ in hop.takes
        ]
        left = (self._rank - 1) % self._size
        coming: deque[mx.array] = deque()
        begun = iter(lengths)
        for number, length in enumerate(lengths):
            while len(coming) < _AHEAD and (next_length := next(begun, None)) is not None:
                shape = (next_length + 2 * SEAL_FLOATS,)
                array = mx.distributed.recv(shape, mx.float32, left, group=self._group)
                mx.async_eval(array)  # type: ignore[no-untyped-call]
                coming.append(array)
            array = coming.popleft()
            mx.eval(array)
            message = _Message(array)
            message.check(chunk.seal(number, length, left), left)
            yield message


def _add(hop: Hop, sums: dict[Range, _Message], own: dict[Range, Floats]) -> None:
    """Of each pair one at least has come by the ring: its place takes the sum."""
    for left, right in hop.adds:
        one, other = sums.pop(left, None), sums.pop(right, None)
        into = one or other
        assert into is not None
        np.add(one.data if one else own[left], other.data if other else own[right], out=into.data)
        sums[left[0], right[1]] = into


def _cut(span: Range, count: int) -> list[Range]:
    """``span`` in so many parts of nearly equal size; none where nothing is in it."""
    start, end = span
    cuts = [start + (end - start) * index // count for index in range(count + 1)] if count else []
    return list(pairwise(cuts))
