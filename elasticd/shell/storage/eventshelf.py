"""Which events of ended jobs lie on the disk, so that nobody has to read them at the start.

One file says of each job's file how long it was, which events of which origins it has, and when the
job ended. A file that has changed since is read again, so the index may be old, or missing.

There may be tens of thousands of such jobs. So what each has is kept packed, and the index says
also what all of them have together: at most starts nothing else is asked for.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from elasticd.shell.storage.durable import write_whole
from elasticd.shell.storage.journal import frame, salvage

NAME = "_shelf"
_VERSION = 2
_UNPACKED = 1
"""The version before, which has what each job has in lists."""

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
        return cls(*stamp, ended, msgpack.packb(ranges))

    @property
    def stamp(self) -> tuple[int, int]:
        """The file's length in bytes, and when it was changed, in nanoseconds."""
        return self.size_bytes, self.changed_nanoseconds

    @property
    def ranges(self) -> Ranges:
        """Which events there are."""
        plain = unpacked(self.packed)
        return {origin: [(a, b) for a, b in held] for origin, held in plain.items()}


def unpacked(packed: bytes) -> Any:
    """Takes a few microseconds, of which there may be tens of thousands."""
    return msgpack.unpackb(packed)


class Segments:
    """Finds what lies on the disk of one origin after the other: a node that lacks much asks again
    behind every few hundred events.

    Attributes:
        taken: what was taken out of the shelves since.
    """

    def __init__(self, shelves: dict[str, ShelvedEvents]) -> None:
        """None is put into ``shelves`` once anybody asks."""
        self._shelves = shelves
        self.taken: dict[str, ShelvedEvents] = {}
        self._lock = threading.Lock()
        self._jobs: dict[str, list[str]] | None = None
        """Of which each origin has told."""
        self._last: tuple[str, list[Segment]] = ("", [])

    def take_out(self, job: str) -> ShelvedEvents:
        """From now on its events are in memory, or nowhere."""
        # It is noted as taken before it is: somebody may look meanwhile.
        self.taken[job] = self._shelves[job]
        return self._shelves.pop(job)

    def origins(self) -> frozenset[str]:
        """All that the shelves have told of. Blocks."""
        with self._lock:
            return frozenset(self._known())

    def of(self, origin: str) -> list[Segment]:
        """In order, with those that were taken out. Blocks."""
        with self._lock:
            if self._last[0] != origin:
                found = ((job, self._shelf(job)) for job in self._known().get(origin, ()))
                ranges = ((job, shelf.ranges.get(origin, ())) for job, shelf in found)
                self._last = origin, sorted((a, b, job) for job, held in ranges for a, b in held)
            return self._last[1]

    def _known(self) -> dict[str, list[str]]:
        if self._jobs is None:
            self._jobs = {}
            for job, shelf in {**self._shelves, **self.taken}.items():
                for each in shelf.ranges:
                    self._jobs.setdefault(sys.intern(each), []).append(job)
        return self._jobs

    def _shelf(self, job: str) -> ShelvedEvents:
        return self._shelves.get(job) or self.taken[job]


@dataclass(frozen=True, slots=True)
class Index:
    """What the file says."""

    shelves: dict[str, ShelvedEvents] = field(default_factory=dict)
    """Per job."""
    together: Ranges = field(default_factory=dict)
    """What all of them have; empty: it doesn't say."""

    def together_of(self, shelves: Mapping[str, ShelvedEvents]) -> Ranges:
        """What these have, of those that it names."""
        known = self.together if len(shelves) == len(self.shelves) else {}
        return known or all_ranges(shelves)


def stamp_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns


def ranges_of(keys: Iterable[tuple[str, int]]) -> Ranges:
    """Of events by origin and number."""
    return joined((origin, number, number) for origin, number in keys)


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


def last_numbers(several: Iterable[Ranges]) -> dict[str, int]:
    """The highest number of each origin."""
    last: dict[str, int] = {}
    for origin, held in (each for ranges in several for each in ranges.items()):
        last[origin] = max(held[-1][1], last.get(origin, 0))
    return last


def all_ranges(shelves: Mapping[str, ShelvedEvents]) -> Ranges:
    """What all of them have together."""
    every = (each.ranges.items() for each in shelves.values())
    return joined((origin, *pair) for ranges in every for origin, held in ranges for pair in held)


def read(folder: Path) -> Index:
    """An empty one where the index is missing or damaged."""
    try:
        plain = salvage((folder / NAME).read_bytes())[-1]
        if plain["version"] == _UNPACKED:
            return Index(_unpacked(plain))
        if plain["version"] != _VERSION:
            return Index()
        shelves = {job: _shelf(row) for job, row in plain["jobs"].items()}
        together = plain["together"].items()
        return Index(shelves, {o: [(int(a), int(b)) for a, b in held] for o, held in together})
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return Index()


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
