"""Which events of ended jobs lie on the disk, so that nobody has to read them at the start.

One file says of each job's file how long it was, which events of which origins it has, and when the
job ended. A file that has changed since is read again, so the index may be old, or missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.shell.storage.durable import write_whole
from elasticd.shell.storage.journal import frame, salvage

NAME = "_shelf"
_VERSION = 1

Ranges = dict[str, list[tuple[int, int]]]
"""Per origin the numbers that there are, from and to, in order."""


@dataclass(frozen=True, slots=True)
class ShelvedEvents:
    """What is known of one job's file."""

    stamp: tuple[int, int]
    """Its length in bytes, and when it was changed, in nanoseconds."""
    ended: float
    ranges: Ranges


def stamp_of(path: str | os.PathLike[str]) -> tuple[int, int]:
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns


def ranges_of(keys: Iterable[tuple[str, int]]) -> Ranges:
    """Of events by origin and number."""
    found: Ranges = {}
    for origin, number in sorted(keys):
        known = found.setdefault(origin, [])
        if known and known[-1][1] == number - 1:
            known[-1] = (known[-1][0], number)
        else:
            known.append((number, number))
    return found


def read(folder: Path) -> dict[str, ShelvedEvents]:
    """Per job; nothing where the index is missing or damaged."""
    origins: list[str] = []
    try:
        plain = salvage((folder / NAME).read_bytes())[-1]
        if plain["version"] != _VERSION:
            return {}
        origins = plain["origins"]
        return {
            job: ShelvedEvents(
                (int(row[0]), int(row[1])),
                float(row[2]),
                {origins[at]: [(int(a), int(b)) for a, b in ranges] for at, ranges in row[3]},
            )
            for job, row in plain["jobs"].items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        return {}


def write(folder: Path, shelves: Mapping[str, ShelvedEvents]) -> None:
    """Raises OSError: the disk is full."""
    places: dict[str, int] = {}
    rows: dict[str, Any] = {}
    for job, shelf in shelves.items():
        ranges = [
            (places.setdefault(origin, len(places)), held) for origin, held in shelf.ranges.items()
        ]
        rows[job] = (*shelf.stamp, shelf.ended, ranges)
    plain = {"version": _VERSION, "origins": list(places), "jobs": rows}
    write_whole(folder / NAME, frame([plain]))
