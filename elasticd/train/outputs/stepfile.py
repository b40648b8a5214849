"""A file on this node's disk whose text is told apart by the step that wrote it.

When a job goes back to an earlier state, its script writes some lines again; so the file goes back
too. Beside it lies an index, a record of 16 bytes for each step, which outlives this process. The
text is written before its record: what has no record is cut off by the next process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import weakref
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BASE = -1
"""The step of what was in the file before the run."""
_RECORD = struct.Struct("<QQ")
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """A file's beginning: of so many records and bytes, with that digest."""

    records: int
    bytes: int
    digest: str


class StepFile:
    """For one thread. Every method that touches the disk may raise OSError."""

    record_bytes = _RECORD.size

    def __init__(self, path: Path, index: Path, step: int) -> None:
        """Open it, or make it, with what the steps to ``step`` have written."""
        for each in (path, index):
            each.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        weakref.finalize(self, os.close, self._file)
        self._index = os.open(index, flags, 0o644)
        weakref.finalize(self, os.close, self._index)
        self.pwrite: Callable[[int, bytes, int], int] | None = None
        """Instead of the system's, in tests."""
        self._steps, self._ends = array("q"), array("q")
        self._tail = 0
        """So many bytes behind the last record's."""
        self.marked = Extent(0, 0, hashlib.blake2b(digest_size=16).hexdigest())
        """Its beginning that all members have alike."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._read_index()
        if not self._steps:
            self._record(BASE, os.fstat(self._file).st_size)
        self._cut(step)

    def _read_index(self) -> None:
        size, before = os.fstat(self._file).st_size, (BASE - 1, 0)
        data = self._pread(self._index, 0, os.fstat(self._index).st_size)
        for step, end in _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]):
            step += BASE
            if step <= before[0] or not before[1] <= end <= size:
                break
            self._steps.append(step)
            self._ends.append(end)
            before = step, end

    @property
    def _last(self) -> int:
        return self._steps[-1] if self._steps else BASE - 1

    @property
    def _end(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def size(self) -> int:
        """Bytes of its text."""
        return self._end + self._tail

    def append(self, step: int, text: bytes) -> None:
        """What ``step`` has written; none, if another text of it is there."""
        if step <= self._last:
            return
        self._write(self._end, text)
        self._record(step, self._end + len(text))

    def append_behind(self, text: bytes) -> None:
        """What no step has written."""
        self._write(self._end + self._tail, text)
        self._tail += len(text)

    def cut(self, step: int) -> None:
        """Have what the steps to ``step`` have written."""
        if self._last > max(step, BASE):
            self._cut(step)

    def _cut(self, step: int) -> None:
        while self._last > max(step, BASE):
            self._steps.pop()
            self._ends.pop()
        self._truncate()

    def _truncate(self) -> None:
        """Drop from the disk what no record in memory tells of."""
        self._tail = 0
        os.ftruncate(self._index, len(self._steps) * _RECORD.size)
        os.ftruncate(self._file, self._end)
        if self.marked.records > len(self._steps):
            self.mark()

    # What members compare.

    def told(self) -> Extent:
        """All that steps have written."""
        digest = self._hash.copy()
        self._update(digest, self.marked.bytes)
        return Extent(len(self._steps), self._end, digest.hexdigest())

    def runs(self) -> list[list[int]]:
        """Which steps it has: the first and the last of each run of them."""
        if not self._steps:
            return []
        steps = np.array(self._steps, np.int64)
        ends = np.flatnonzero(np.diff(steps) != 1)
        firsts, lasts = steps[np.r_[0, ends + 1]], steps[np.r_[ends, -1]]
        return [[int(first), int(last)] for first, last in zip(firsts, lasts, strict=True)]

    def mark(self) -> None:
        """All of it is what every member has."""
        if self.marked.bytes > self._end or self.marked.records > len(self._steps):
            self.marked = Extent(0, 0, "")
            self._hash = hashlib.blake2b(digest_size=16)
        self._update(self._hash, self.marked.bytes)
        self.marked = Extent(len(self._steps), self._end, self._hash.hexdigest())

    def _update(self, digest: hashlib.blake2b, start: int) -> None:
        for at in range(start, self._end, _PIECE_BYTES):
            digest.update(self._pread(self._file, at, min(_PIECE_BYTES, self._end - at)))

    def read(self, since: Extent) -> bytes:
        """What follows ``since``: records, then text."""
        records = zip(self._steps[since.records :], self._ends[since.records :], strict=True)
        packed = b"".join(_RECORD.pack(step - BASE, end) for step, end in records)
        return packed + self._pread(self._file, since.bytes, self._end - since.bytes)

    def replace(self, since: Extent, content: bytes) -> None:
        """Have another member's content behind ``since``, as :meth:`read` gave it there."""
        tail = self._pread(self._file, self._end, self._tail)
        del self._steps[since.records :], self._ends[since.records :]
        self._truncate()
        records, text = _unpacked(content, since.bytes)
        self._write(since.bytes, text)
        for step, end in records:
            self._record(step, end)
        self.append_behind(tail)

    # The disk.

    def _record(self, step: int, end: int) -> None:
        place = len(self._steps) * _RECORD.size
        self._put(self._index, place, _RECORD.pack(step - BASE, end))
        self._steps.append(step)
        self._ends.append(end)

    def _write(self, at: int, text: bytes) -> None:
        try:
            self._put(self._file, at, text)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, at)
            raise

    def _put(self, fd: int, at: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = (self.pwrite or os.pwrite)(fd, bytes(view[:_PIECE_BYTES]), at)
            view, at = view[done:], at + done

    def _pread(self, fd: int, at: int, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := os.pread(fd, min(size, _PIECE_BYTES), at)):
            pieces.append(piece)
            at, size = at + len(piece), size - len(piece)
        return b"".join(pieces)


def _unpacked(content: bytes, start: int) -> tuple[list[tuple[int, int]], bytes]:
    """Records, with where each step's text ends, and the text, which begins at ``start``."""
    records, at, end = [], 0, start
    while end - start + at < len(content):
        step, end = _RECORD.unpack_from(content, at)
        records.append((step + BASE, end))
        at += _RECORD.size
    return records, content[at:]


def merged(contents: Sequence[bytes]) -> bytes:
    """Of whole files, as :meth:`StepFile.read` gives them, one with every step that any of them
    has, as the first that has it."""
    texts: dict[int, bytes] = {}
    for content in contents:
        records, text = _unpacked(content, 0)
        start = 0
        for step, end in records:
            texts.setdefault(step, text[start:end])
            start = end
    packed, end = [], 0
    for step in sorted(texts):
        end += len(texts[step])
        packed.append(_RECORD.pack(step - BASE, end))
    return b"".join([*packed, *(texts[step] for step in sorted(texts))])
