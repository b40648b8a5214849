"""Samples that are read ahead on a thread of their own."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import mlx.core as mx
import numpy as np

from elasticd.data.cursors import Cursor, State, make_again, undrawn
from elasticd.errors import UsageError

_SMALL_BYTES = 64
"""Of an object, beside what it holds."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One sample, or why there is none; and where the reader stood behind it."""

    sample: Any
    name: str
    state: State
    bytes: int
    error: BaseException | None = None


class _Buffer:
    """What the thread has read and nobody has taken yet."""

    def __init__(self, items: int, most: int) -> None:
        self._items, self._most = items, most
        self._held: deque[_Read] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, read: _Read) -> bool:
        """Waits for room; one sample has room however large it is. False: nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has_room(read.bytes))
            if self._closed:
                return False
            self._held.append(read)
            self._bytes += read.bytes
            self._changed.notify_all()
            return True

    def _has_room(self, more: int) -> bool:
        full = len(self._held) >= self._items or self._bytes + more > self._most
        return not self._held or not full

    def take(self) -> _Read:
        """The next, which the thread is sure to put. An error, and the end, stay."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._held))
            read = self._held[0]
            if read.error is None:
                self._held.popleft()
                self._bytes -= read.bytes
                self._changed.notify_all()
            return read

    def close(self) -> None:
        """The thread ends at its next sample."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify_all()


class Prefetched:
    """The same samples. Its thread begins with the second one, and ends with this object."""

    def __init__(self, rows: Cursor, items: int, most: int) -> None:
        self._rows, self._items, self._most = rows, items, most
        self._again = make_again(rows, "prefetch()", items)
        self._buffer: _Buffer | None = None
        self._thread: threading.Thread | None = None
        self._first = True
        self._state: State | None = None
        self._name = "the first sample"

    def __iter__(self) -> Prefetched:
        return self

    def __next__(self) -> Any:
        if self._first:
            self._first = False
            return self._alone()
        if self._buffer is None:
            self._begin()
        assert self._buffer is not None
        read = self._buffer.take()
        self._name = read.name
        if read.error is not None:
            raise read.error
        self._state = read.state
        self._again.taken()
        return read.sample

    def _alone(self) -> Any:
        """The first sample, on the caller's thread, to see that nothing is drawn for it."""
        with undrawn("prefetch()"):
            sample = next(self._rows)
            size_bytes(sample, *_ARRAYS)
        self._state, self._name = self._rows.state(), self._rows.name()
        return sample

    def _begin(self) -> None:
        buffer = self._buffer = _Buffer(self._items, self._most)
        weakref.finalize(self, buffer.close)
        self._thread = threading.Thread(
            target=_read, args=(self._rows, buffer), name="elasticd-data", daemon=True
        )
        self._thread.start()

    def state(self) -> State:
        return self._rows.state() if self._state is None else self._state

    def load_state(self, state: State) -> None:
        if self._buffer is not None and self._thread is not None:
            self._buffer.close()
            self._thread.join()  # it has the reader in hand
        self._buffer = self._thread = self._state = None
        self._rows.load_state(state)
        self._state = state

    def set_epoch(self, epoch: int, seed: int | None = None) -> None:
        self._rows.set_epoch(epoch, seed)

    def name(self) -> str:
        return self._name


def _read(rows: Cursor, buffer: _Buffer) -> None:
    """The thread. It knows the buffer only, so that who reads from that may go."""
    name, state = "the next sample", rows.state()
    try:
        for sample in rows:
            name, state = rows.name(), rows.state()
            if not buffer.put(_Read(sample, name, state, size_bytes(sample, *_ARRAYS))):
                return
        buffer.put(_Read(None, name, state, 0, StopIteration()))
    except BaseException as error:
        buffer.put(_Read(None, name, state, 0, error))


_ARRAYS = ("what stands above prefetch()", "make NumPy's, or put that map() behind prefetch()")


def size_bytes(sample: Any, what: str, cure: str) -> int:
    """About what it takes in memory.

    Args:
        what: makes it.
        cure: where it makes what it mustn't.

    Raises:
        UsageError: there is an array of MLX's in it, which may belong to the thread that made it.
    """
    if isinstance(sample, mx.array):
        raise UsageError(
            f"{what} makes arrays of MLX's, which other threads can't compute with: {cure}"
        )
    if isinstance(sample, np.ndarray):
        return int(sample.nbytes) + _SMALL_BYTES
    if isinstance(sample, (str, bytes, bytearray)):
        return len(sample) + _SMALL_BYTES
    inside: Iterable[Any] = ()
    if isinstance(sample, dict):
        inside = chain.from_iterable(sample.items())
    elif isinstance(sample, (list, tuple)):
        inside = sample
    return _SMALL_BYTES + sum(size_bytes(each, what, cure) for each in inside)
