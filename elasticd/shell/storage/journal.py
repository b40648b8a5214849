"""The journal: an append-only file of msgpack records, durable before ``append`` returns.

There is no limit: each job that is not forgotten takes its place, and a node that refused to keep
one more would end for good, as all others with the same jobs.

One append is one frame, because a crash may persist the pages of an unsynced write in any order: a
frame counts as a whole or not at all. ``MAGIC`` · u32 length · u32 crc32(length + payload) ·
payload, big-endian; the payload is the msgpack list of the records appended together.

A last frame of which something is missing (its end, or a sector, in whose place are zeros) is a
write that a crash interrupted, was never acknowledged, and is cut off; what is cut stays beside the
journal, in ``<name>.cut``. Any other damage can't come from a crash: the disk lost something that
was acknowledged, so opening fails instead of continuing from a history with a hole. A compaction,
which no crash interrupts, ends with a frame without records: then none with some is the last. That
something was acknowledged at all is noted in ``<name>.begun``, so that a journal that was removed
or emptied is told from one that never was.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgpack

from elasticd.checkpoints.medium import sync_file
from elasticd.checkpoints.sequential import write_all
from elasticd.errors import DamageError, DiskError
from elasticd.shell.storage.durable import (
    PARTIAL_SUFFIX,
    sync_folder,
    write_durable,
)

MAGIC = b"\xe1Jn\x01"
COMPACT_AT_BYTES = 1024 * 1024
"""``wants_compaction`` says nothing below this size: rewriting a small file gains nothing."""
FRAME_BYTES = 1024 * 1024
"""Of records a compaction puts so many into a frame, and one more at most. The last frame has
fewer."""
SECTOR_BYTES = 512
"""A disk writes so many or more at once: the least that a crash leaves out."""

BEGUN_SUFFIX = ".begun"
CUT_SUFFIX = ".cut"
LOST_SUFFIX = ".lost"
"""What a reset puts aside; with a number if there is one already."""
_LATER = re.compile(r"-[1-9]\d{0,8}", re.ASCII)

_HEAD = struct.Struct(">4sII")


Record = Any
"""What msgpack carries: maps, lists, strings, bytes, numbers, None."""
Taken = Callable[[Record], Any]
"""Makes of a record what is kept of it; it never raises. The records of a large journal need much
memory before they are taken."""


def as_it_is(record: Record) -> Any:
    """Keep the record."""
    return record


@dataclass(frozen=True, slots=True)
class Scan:
    """What a journal's bytes hold: the records, where the sound part ends, and whether rot
    follows."""

    records: list[Record]
    sound_bytes: int
    rotten_at: int | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What lies at a journal's path. ``harm`` says what was lost; empty: nothing that was
    acknowledged, though ``cut_bytes`` at the end may be a write that a crash interrupted."""

    data: bytes
    records: list[Record]
    sound_bytes: int
    harm: str

    @property
    def cut_bytes(self) -> int:
        return len(self.data) - self.sound_bytes

    @property
    def compacted_bytes(self) -> int:
        """What the last compaction has left: all full frames at the beginning, one more, and the
        empty one. An append rarely has so much; then the journal grows for a while longer."""
        end = 0
        while end < self.sound_bytes:
            length = int(_HEAD.unpack_from(self.data, end)[1])
            end += _HEAD.size + length
            if length < FRAME_BYTES:
                break
        return end + len(_END) if self.data.startswith(_END, end) else end


def inspect(path: Path, take: Taken = as_it_is) -> Inspection:
    """Read a journal, and change nothing.

    Raises:
        OSError: it can't be read.
    """
    missing = not path.exists()
    data = b"" if missing else path.read_bytes()
    begun = path.with_name(path.name + BEGUN_SUFFIX).exists()
    found = scan(data, take)
    harm = ""
    if found.rotten_at is not None:
        harm = f"damaged at byte {found.rotten_at}, with sound records behind it"
    elif missing and begun:
        harm = "missing, though this node had one"
    elif begun and not found.records:
        harm = f"no record in its {len(data)} bytes is readable, though there were some"
    elif not is_torn(data[found.sound_bytes :], found.sound_bytes):
        cut = len(data) - found.sound_bytes
        harm = f"the last {cut} of its {len(data)} bytes are damaged, which no crash explains"
    return Inspection(data, found.records, found.sound_bytes, harm)


def is_torn(tail: bytes, at: int) -> bool:
    """Whether a tail, which begins there, may be one write that a crash interrupted: a frame whose
    end is missing, or of which there are zeros for a sector."""
    magic = tail[: len(MAGIC)]
    if magic == bytes(len(magic)):
        return True
    if not MAGIC.startswith(magic):
        return False
    if len(tail) < _HEAD.size:
        return True
    length, crc = map(int, _HEAD.unpack_from(tail)[1:])
    payload = tail[_HEAD.size :]
    if len(payload) < length:
        return _crc(payload) != crc  # else all of it is here, and its length has rotted
    return len(payload) == length and _lacks_a_sector(tail, at)


def _lacks_a_sector(data: bytes, at: int) -> bool:
    """Whether there are but zeros in what one of the sectors has of ``data``, which begins there in
    its file."""
    bounds = range(SECTOR_BYTES - at % SECTOR_BYTES, len(data), SECTOR_BYTES)
    return any(not any(data[a:b]) for a, b in pairwise((0, *bounds, len(data))))


def scan(data: bytes, take: Taken = as_it_is) -> Scan:
    """Read frames until the end or the first damage. Pure; never raises."""
    records: list[Record] = []
    offset = 0
    while (found := _frame_at(data, offset)) is not None:
        batch, offset = found
        records.extend(map(take, batch))
    candidate = data.find(MAGIC, offset + 1)
    while candidate >= 0:
        if _frame_at(data, candidate) is not None:
            return Scan(records, offset, rotten_at=offset)
        candidate = data.find(MAGIC, candidate + 1)
    return Scan(records, offset, rotten_at=None)


def salvage(data: bytes) -> list[Record]:
    """The records of every sound frame, whatever is damaged between them. Pure; never raises."""
    records: list[Record] = []
    offset = 0
    while offset >= 0:
        found = _frame_at(data, offset)
        if found is None:
            offset = data.find(MAGIC, offset + 1)
        else:
            records.extend(found[0])
            offset = found[1]
    return records


def payload_at(data: bytes, offset: int) -> bytes | None:
    """What the frame there has in it, packed; None: there is no sound one."""
    start = offset + _HEAD.size
    if start > len(data):
        return None
    magic, length, crc = _HEAD.unpack_from(data, offset)
    payload = data[start : start + length]
    return payload if magic == MAGIC and len(payload) == length and _crc(payload) == crc else None


def _frame_at(data: bytes, offset: int) -> tuple[list[Record], int] | None:
    payload = payload_at(data, offset)
    if payload is None:
        return None
    end = offset + _HEAD.size + len(payload)
    try:
        batch = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except ValueError:
        return None
    return (batch, end) if isinstance(batch, list) else None


def _crc(payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack(">I", len(payload))))


def put_aside(path: Path) -> list[Path]:
    """What resets have put aside of the journal at ``path``, the newest last."""
    return [aside for _, aside in sorted(_numbered(path))]


def _numbered(path: Path) -> Iterator[tuple[int, Path]]:
    for aside in path.parent.glob(f"{path.name}{LOST_SUFFIX}*"):
        number = aside.name.removeprefix(path.name + LOST_SUFFIX)
        if not number or _LATER.fullmatch(number):
            yield int(number[1:] or 1), aside


def begin_anew(path: Path, records: Sequence[Record]) -> Path | None:
    """Put what is at ``path`` aside, in ``<name>.lost`` or, so that none is replaced,
    ``<name>.lost-2`` and so on, and begin a journal with ``records``. A crash leaves the old one or
    the new one. No process may have it open. Returns what has the old one.

    Raises:
        OSError: the disk refuses.
    """
    aside = _put_aside(path)
    write_durable(path, frames(records))
    write_durable(path.with_name(path.name + BEGUN_SUFFIX), b"")
    path.with_name(path.name + CUT_SUFFIX).unlink(missing_ok=True)
    return aside


def _put_aside(path: Path) -> Path | None:
    last = max(_numbered(path), default=None)
    number = f"-{last[0] + 1}" if last else ""
    place = path.with_name(f"{path.name}{LOST_SUFFIX}{number}")
    try:
        data = path.read_bytes()
        if last is not None and last[1].is_file() and last[1].read_bytes() == data:
            return last[1]  # a reset that was cut short has done so
        write_durable(place, data)
    except FileNotFoundError:
        return None
    except OSError:  # who can't read it may still rename it
        path.rename(place)
    return place


def frame(records: Sequence[Record]) -> bytes:
    """The bytes of one append."""
    return _framed([msgpack.packb(record, use_bin_type=True) for record in records])


def frames(records: Iterable[Record]) -> Iterator[bytes]:
    """The bytes of a journal with nothing but these records, frame by frame: of years they are
    much, and each is read by itself, too. Where there are any the last frame is empty: of the file,
    which gets its name once it is whole, no crash can be made out for what is wrong before that."""
    part: list[bytes] = []
    size, some = 0, False
    for record in records:
        part.append(msgpack.packb(record, use_bin_type=True))
        size, some = size + len(part[-1]), True
        if size >= FRAME_BYTES:
            yield _framed(part)
            part, size = [], 0
    if part:
        yield _framed(part)
    if some:
        yield _END


def _framed(packed: Sequence[bytes]) -> bytes:
    payload: bytes = msgpack.Packer().pack_array_header(len(packed)) + b"".join(packed)
    return _HEAD.pack(MAGIC, len(payload), _crc(payload)) + payload


_END = frame([])


class Journal:
    """An open journal; one process owns it (the daemon's lock file sees to that).

    Attributes:
        cut_bytes: what ``open`` cut off the end: the write that the last crash interrupted.
    """

    def __init__(
        self,
        path: Path,
        fd: int,
        size_bytes: int,
        cut_bytes: int,
        compacted_bytes: int,
        begun: bool = True,
    ) -> None:
        self.path = path
        self.cut_bytes = cut_bytes
        self._fd = fd
        self._size = size_bytes
        self._compacted = compacted_bytes
        self._broken: str | None = None
        self._begun = begun

    @classmethod
    def open(cls, path: Path, take: Taken = as_it_is) -> tuple[Journal, list[Any]]:
        """Open or create; returns the journal and what ``take`` makes of every record in it, oldest
        first.

        Raises:
            DamageError: the disk lost something that was acknowledged, or can't read it. The file
                is left as it is, for a human or for ``reset``.
            OSError: the file can't be written.
        """
        try:
            found = inspect(path, take)
        except OSError as error:
            raise DamageError(f"{path}: can't be read: {error.strerror}") from error
        if found.harm:
            raise DamageError(f"{path}: {found.harm}: the disk lost acknowledged data")
        path.with_name(path.name + PARTIAL_SUFFIX).unlink(missing_ok=True)
        if found.cut_bytes:
            write_durable(path.with_name(path.name + CUT_SUFFIX), found.data[found.sound_bytes :])
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if found.cut_bytes:
                os.ftruncate(fd, found.sound_bytes)
            sync_file(fd)
            sync_folder(path.parent)
            journal = cls(
                path, fd, found.sound_bytes, found.cut_bytes, found.compacted_bytes, begun=False
            )
            if found.records:
                journal._note_begun()
        except BaseException:
            os.close(fd)
            raise
        return journal, found.records

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def wants_compaction(self) -> bool:
        """Whether the file is large and has doubled since it was last rewritten, in this run or an
        earlier one. So it has twice what counted then at most, however much that is."""
        return self._size > max(COMPACT_AT_BYTES, 2 * self._compacted)

    def append(self, records: Iterable[Record]) -> None:
        """Add records, all or none, and return when they are on the medium: one write, one sync.

        Raises:
            DiskError: the disk is full or failed. After a failed sync the journal takes no more.
        """
        batch = list(records)
        if not batch:
            return
        if self._broken is not None:
            raise DiskError(self._broken)
        data = frame(batch)
        try:
            write_all(self._fd, data)
            sync_file(self._fd)
        except OSError as error:
            self._undo(error)
            raise DiskError(f"{self.path}: {error.strerror}") from error
        self._size += len(data)
        try:
            self._note_begun()
        except OSError as error:
            raise DiskError(f"{self.path}{BEGUN_SUFFIX}: {error.strerror}") from error

    def _note_begun(self) -> None:
        """From now on an empty journal is one that was lost."""
        if not self._begun:
            write_durable(self.path.with_name(self.path.name + BEGUN_SUFFIX), b"")
            self._begun = True

    def _undo(self, error: OSError) -> None:
        # Half a frame must not stay in front of the next one, where it would read as rot.
        try:
            os.ftruncate(self._fd, self._size)
            sync_file(self._fd)
        except OSError:
            self._broken = f"{self.path}: an earlier write failed: {error.strerror}"

    def compact(self, records: Iterable[Record]) -> None:
        """Replace the whole journal by ``records``; a crash leaves the old one or the new one.

        Raises:
            DiskError: the new file can't be written; the old one stays in use.
        """
        try:
            write_durable(self.path, frames(records))
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError as error:
            # Whether the rename reached the disk is unknown, so appends to the old file may be
            # lost.
            if not self._still_named():
                self._broken = f"{self.path}: an earlier compaction failed: {error.strerror}"
            raise DiskError(f"{self.path}: {error.strerror}") from error
        os.close(self._fd)
        self._fd, self._broken = fd, None
        self._size = self._compacted = os.fstat(fd).st_size

    def _still_named(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except OSError:
            return False

    def close(self) -> None:
        """Close the file. Idempotent; an append afterwards raises ``DiskError``."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._broken = f"{self.path}: closed"
