"""A file on this node's disk whose text is told apart by the step that wrote it.

When a job goes back to an earlier state, its script writes some lines again; so the file goes back
too. Beside it lies its index (:mod:`elasticd.stepindex`), which outlives this
process. The text is written before its record: what has no record is cut off by the next process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from elasticd.stepindex import BASE, LONGEST, MAGIC, StepIndex
from elasticd.train.outputs.prefixes import Prefixes
from elasticd.train.outputs.records import RECORD_BYTES, packed, sensible, unpacked

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """A file's beginning: of so many steps and bytes, with that digest."""

    records: int
    bytes: int
    digest: str


NOTHING = Extent(0, 0, "")


@dataclass(frozen=True, slots=True)
class Since:
    """A file's beginning which another member has: so many bytes of its text, and of what tells
    which step wrote what."""

    bytes: int = 0
    code: int = 0


class StepFile:
    """For one thread. Every method that touches the disk may raise OSError."""

    def __init__(self, path: Path, index: Path, step: int) -> None:
        """Open it, or make it, with what the steps to ``step`` have written."""
        for each in (path, index):
            each.parent.mkdir(parents=True, exist_ok=True)
        _renew(path, index)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        weakref.finalize(self, os.close, self._file)
        self._index = os.open(index, flags, 0o644)
        weakref.finalize(self, os.close, self._index)
        self.pwrite: Callable[[int, bytes, int], int] | None = None
        """Instead of the system's, in tests."""
        self._tail = 0
        """So many bytes behind the last record's."""
        self._prefixes = Prefixes(lambda at, size: self._pread(self._file, at, size))
        self._records = self._read_index()
        self.marked, self.marked_code = NOTHING, 0
        """Its beginning that all members have alike, and how much of the code is that."""
        if not self._records.steps:
            self._record(BASE, os.fstat(self._file).st_size)
        self._cut(step)

    def _read_index(self) -> StepIndex:
        size = os.fstat(self._file).st_size
        data = self._pread(self._index, 0, os.fstat(self._index).st_size)
        if data.startswith(MAGIC):
            return StepIndex.parsed(data[len(MAGIC) :], size)
        self._put(self._index, 0, MAGIC)
        return StepIndex()

    @property
    def size(self) -> int:
        """Bytes of its text."""
        return self._records.end + self._tail

    def append(self, step: int, text: bytes) -> None:
        """What ``step`` has written; none, if another text of it is there."""
        if step <= self._records.last:
            return
        end = self._records.end
        self._write(end, text)
        self._record(step, end + len(text))

    def append_behind(self, text: bytes) -> None:
        """What no step has written."""
        self._write(self.size, text)
        self._tail += len(text)

    def cut(self, step: int) -> None:
        """Have what the steps to ``step`` have written."""
        if self._records.last > max(step, BASE):
            self._cut(step)

    def _cut(self, step: int) -> None:
        self._records.cut(max(step, BASE))
        self._truncate()
        if self.marked.records > self._records.steps:
            self.mark()

    def _truncate(self) -> None:
        """Drop from the disk what no record in memory tells of."""
        self._tail = 0
        code = self._records.code
        os.ftruncate(self._index, len(MAGIC) + len(code))
        self._put_code(max(len(code) - LONGEST, 0))  # the last number may be another
        os.ftruncate(self._file, self._records.end)
        self._prefixes.cut(self._records.end)

    # What members compare.

    def told(self) -> Extent:
        """All that steps have written."""
        end = self._records.end
        return Extent(self._records.steps, end, self._prefixes.digest(end))

    def pieces(self) -> list[bytes]:
        """Digests of its text's beginnings."""
        return self._prefixes.whole(self._records.end)

    def code(self) -> tuple[int, bytes]:
        """How long its index's code is, and that one's digest."""
        code = self._records.code
        return len(code), hashlib.blake2b(code, digest_size=16).digest()

    def runs(self) -> list[list[int]]:
        """Which steps it has: the first and the last of each run of them."""
        return self._records.runs()

    def mark(self) -> None:
        """All of it is what every member has."""
        self.marked, self.marked_code = self.told(), self._records.settled

    def read(self, since: Since) -> bytes:
        """What follows ``since``: code, then text."""
        text = self._pread(self._file, since.bytes, self._records.end - since.bytes)
        return bytes(self._records.code[since.code :]) + text

    def read_records(self, since: Since) -> bytes:
        """As :meth:`read`, with records in place of the code."""
        records = islice(self._records.records(), since.code // RECORD_BYTES, None)
        text = self._pread(self._file, since.bytes, self._records.end - since.bytes)
        return packed(records, text)

    def replace(self, since: Since, content: bytes, code: int) -> None:
        """Have another member's content behind ``since``, as :meth:`read` gave it there; its first
        ``code`` bytes are code."""
        whole = bytes(self._records.code[: since.code]) + content[:code]
        text = content[code:]
        self.have(StepIndex.parsed(whole, since.bytes + len(text)), since.bytes, text)

    def replace_records(self, since: Since, content: bytes) -> None:
        """As :meth:`replace`, with what :meth:`read_records` gave."""
        records, text = unpacked(content, since.bytes)
        before = islice(self._records.records(), since.code // RECORD_BYTES)
        self.have(StepIndex.of([*before, *records]), since.bytes, text)

    def have(self, index: StepIndex, start: int, text: bytes) -> None:
        """Have other text behind the first ``start`` bytes, with the index of all of it."""
        tail = self._pread(self._file, self._records.end, self._tail)
        # What a disk that refuses the rest leaves.
        kept = StepIndex.parsed(bytes(self._records.code), start)
        text = self._pread(self._file, kept.end, start - kept.end) + text
        self._records = kept
        self.marked, self.marked_code = NOTHING, 0
        self._truncate()
        self._write(kept.end, text)
        try:
            self._put(self._index, len(MAGIC), bytes(index.code))
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._index, len(MAGIC) + len(kept.code))
                self._put_code(0)
            raise
        self._records = index
        self.append_behind(tail)

    # The disk.

    def _record(self, step: int, end: int) -> None:
        length = end - self._records.end
        at, code = self._records.addition(step, length)
        self._put(self._index, len(MAGIC) + at, code)
        self._records.take(step, length)

    def _put_code(self, start: int) -> None:
        self._put(self._index, len(MAGIC) + start, bytes(self._records.code[start:]))

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


def _renew(path: Path, index: Path) -> None:
    """Write the index of an earlier version as it is written today."""
    try:
        data, size = index.read_bytes(), path.stat().st_size
    except FileNotFoundError:
        return
    if data and not data.startswith(MAGIC):
        fresh = index.with_name(f"{index.name}.new")
        fresh.write_bytes(MAGIC + StepIndex.of(sensible(data, size)).code)
        fresh.replace(index)
