"""Which events of ended jobs lie on the disk, so that nobody has to read them at the start.

One file says of each job's file how long it was, which events of which origins it has, and when the
job ended. A file that has changed since is read again, so the index may be old, or missing.

There may be tens of thousands of such jobs. So what each has is kept packed, and the index says
also what all of them have together: at most starts nothing else is asked for.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgpack

from elasticd.shell.storage.durable import PARTIAL_SUFFIX, write_whole
from elasticd.shell.storage.eventfiles import SUFFIX
from elasticd.shell.storage.journal import frame, payload_at

NAME = "_shelf"
_VERSION = 2
_UNPACKED = 1
"""The version before, which has what each job has in lists."""
_LARGE_BYTES, _TABLES_BYTES = 8 << 10, 4 << 20
"""Packed: a table that is not unpacked for each of its origins, and all of those together."""

Ranges = dict[str, list[tuple[int, int]]]
"""Per origin the numbers that there are, from and to, in order."""
Segment = tuple[int, int, str]
"""Numbers of one origin, from and to, and of which job they are."""


@dataclass(frozen=True, slots=True)
class ShelvedEvents:
    """What is known of one job's file."""

    size_bytes: int
    changed_nanoseconds: int
    ended: float
    packed: bytes
    """Its ranges."""

    @classmethod
    def of(cls, stamp: tuple[int, int], ended: float, ranges: Ranges) -> ShelvedEvents:
        return cls(*stamp, ended, packed(ranges))

    @property
    def stamp(self) -> tuple[int, int]:
        """The file's length in bytes, and when it was changed, in nanoseconds."""
        return self.size_bytes, self.changed_nanoseconds

    @property
    def ranges(self) -> Ranges:
        """Which events there are."""
        return ranges_in(self.packed)


def packed(ranges: Ranges) -> bytes:
    """As memory and the index have them."""
    return bytes(msgpack.packb(ranges))


def ranges_in(packed: bytes) -> Ranges:
    plain = unpacked(packed)
    return {origin: [(a, b) for a, b in held] for origin, held in plain.items()}


def unpacked(packed: bytes) -> Any:
    """Takes a few microseconds, of which there may be tens of thousands."""
    return msgpack.unpackb(packed)


@dataclass(slots=True)
class _Lying:
    """What is known while others are told of what lies on the disk."""

    files: dict[str, list[str]] = field(default_factory=dict)
    """That have any of each origin, at least; some more than once."""
    changed: deque[str] = field(default_factory=deque)
    """Files, since then: the loop adds them, and takes none out."""
    tables: dict[str, Ranges] = field(default_factory=dict)
    """Unpacked: the large ones. Each has many origins, and is asked for each of them."""
    last: tuple[str, list[Segment]] = ("", [])


class Segments:
    """Finds what lies on the disk of one origin after the other: a node that lacks much asks again
    behind every few hundred events."""

    def __init__(self, shelves: Mapping[str, bytes]) -> None:
        """``shelves``: what each file has, packed. Of what changes there :meth:`changed` is told;
        what is taken out needs no word."""
        self._shelves = shelves
        self._lock = threading.Lock()
        self._found: _Lying | None = None

    def changed(self, name: str) -> None:
        """That file has more, or less, than before."""
        if (found := self._found) is not None:
            found.changed.append(name)

    def rest(self) -> None:
        """Nobody asks for now: of years it is megabytes that nobody needs. Who still does goes on
        with what it has, and that goes with it."""
        self._found = None

    def origins(self) -> frozenset[str]:
        """All that the shelves have told of. Blocks."""
        with self._lock:
            return frozenset(self._known().files)

    def of(self, origin: str) -> list[Segment]:
        """In order. Blocks."""
        with self._lock:
            known = self._known()
            if known.last[0] != origin:
                names = dict.fromkeys(known.files.get(origin, ()))
                tables = ((name, self._table(known, name)) for name in names)
                ranges = ((name, table.get(origin, ())) for name, table in tables)
                known.last = origin, sorted((a, b, name) for name, held in ranges for a, b in held)
            return known.last[1]

    def _known(self) -> _Lying:
        found = self._found
        if found is None:
            found = self._found = _Lying()  # what changes from now on it is told of
            news = list(self._shelves)
        else:
            news = [found.changed.popleft() for _ in range(len(found.changed))]
        for name in news:
            found.tables.pop(name, None)
            for origin in self._table(found, name):
                found.files.setdefault(origin, []).append(name)
        if news:
            found.last = ("", [])
        return found

    def _table(self, found: _Lying, name: str) -> Ranges:
        packed = self._shelves.get(name)
        if packed is None:
            return {}
        if (known := found.tables.get(name)) is not None:
            return known
        table: Ranges = unpacked(packed)
        if len(packed) >= _LARGE_BYTES:
            found.tables[name] = table
            kept = sum(len(self._shelves.get(each, b"")) for each in found.tables)
            if kept > _TABLES_BYTES and len(found.tables) > 1:
                del found.tables[name]
        return table


@dataclass(frozen=True, slots=True)
class Index:
    """What the file says."""

    shelves: dict[str, ShelvedEvents] = field(default_factory=dict)
    """Per job."""
    together: Ranges = field(default_factory=dict)
    """What all of them have; empty: it doesn't say."""

    def take_same(self, folder: Path) -> dict[str, ShelvedEvents]:
        """Take out those of which the file is as it was when that was noted."""
        return {
            name: self.shelves.pop(name)
            for name, stamp in stamps(folder)
            if name in self.shelves and self.shelves[name].stamp == stamp
        }


def stamps(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of every file of events; what was written by halves goes."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(PARTIAL_SUFFIX):
                os.unlink(entry.path)
            elif entry.name.endswith(SUFFIX):
                stat = entry.stat()
                yield entry.name.removesuffix(SUFFIX), (stat.st_size, stat.st_mtime_ns)


def stamp_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns


def ranges_of(keys: Iterable[tuple[str, int]], before: bytes | None = None) -> Ranges:
    """Of events by origin and number, and of those that were there before."""
    held = {} if before is None else unpacked(before)
    known = ((origin, *pair) for origin, pairs in held.items() for pair in pairs)
    return joined(chain(known, ((origin, number, number) for origin, number in keys)))


def count(ranges: Ranges) -> int:
    """How many events there are."""
    return sum(last - first + 1 for held in ranges.values() for first, last in held)


def joined(ranges: Iterable[tuple[str, int, int]]) -> Ranges:
    """Ranges of origins in any order; those that touch become one."""
    found: Ranges = {}
    for origin, first, last in sorted(ranges):
        known = found.setdefault(origin, [])
        if known and first <= known[-1][1] + 1:
            known[-1] = (known[-1][0], max(last, known[-1][1]))
        else:
            known.append((first, last))
    return found


def all_ranges(shelves: Mapping[str, ShelvedEvents]) -> Ranges:
    """What all of them have together."""
    every = (each.ranges.items() for each in shelves.values())
    return joined((origin, *pair) for ranges in every for origin, held in ranges for pair in held)


def read(folder: Path) -> Index:
    """An empty one where the index is missing or damaged."""
    try:
        return _index((folder / NAME).read_bytes())
    except (OSError, ValueError, TypeError, LookupError, AttributeError, msgpack.UnpackException):
        return Index()


def _index(data: bytes) -> Index:
    """Line by line: all of it at once would need several times what is kept of it."""
    payload = payload_at(data, 0)
    if payload is None:
        raise ValueError("its frame is damaged")
    lines = msgpack.Unpacker(max_buffer_size=0)
    lines.feed(payload)
    del payload
    if lines.read_array_header() != 1:
        raise ValueError("there is more than one")
    shelves: dict[str, ShelvedEvents] = {}
    together: Ranges = {}
    old: dict[str, Any] = {}
    version = None
    for _ in range(lines.read_map_header()):
        key = lines.unpack()
        if key == "version":
            version = lines.unpack()
        elif key == "together" and version == _VERSION:
            for _ in range(lines.read_map_header()):
                origin, held = lines.unpack(), lines.unpack()
                together[origin] = [(int(a), int(b)) for a, b in held]
        elif key == "jobs" and version == _VERSION:
            for _ in range(lines.read_map_header()):
                job, row = lines.unpack(), lines.unpack()
                shelves[job] = _shelf(row)
        else:
            old[key] = lines.unpack()
    return Index(_unpacked(old)) if version == _UNPACKED else Index(shelves, together)


def _shelf(row: Any) -> ShelvedEvents:
    size, changed, ended, packed = row
    if not isinstance(packed, bytes):
        raise TypeError("ranges are packed")
    return ShelvedEvents(int(size), int(changed), float(ended), packed)


def _unpacked(plain: Any) -> dict[str, ShelvedEvents]:
    origins = plain["origins"]
    return {
        job: ShelvedEvents.of(
            (int(row[0]), int(row[1])),
            float(row[2]),
            {origins[at]: [(int(a), int(b)) for a, b in ranges] for at, ranges in row[3]},
        )
        for job, row in plain["jobs"].items()
    }


def write(folder: Path, shelves: Mapping[str, ShelvedEvents]) -> None:
    """Raises OSError: the disk is full."""
    rows = {job: (*each.stamp, each.ended, each.packed) for job, each in shelves.items()}
    plain = {"version": _VERSION, "together": all_ranges(shelves), "jobs": rows}
    write_whole(folder / NAME, frame([plain]))
