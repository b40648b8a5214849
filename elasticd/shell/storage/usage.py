"""What takes the space in a home: by kind, and by job."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from elasticd.types import JobId

OF_JOBS = {
    "checkpoints": "checkpoints",
    "outputs": "output",
    "copies": "outputs",
    "logs": "logs",
    "work": "work",
    "clones": "clones",
    "history": "history",
}
"""Kinds that have a folder for each job, and in which folder those lie."""
OF_ALL = {"archives": "archives", "events": "events", "cache": "cache"}
RECREATED = ("work", "clones", "logs")
"""Kinds that are no results of a job."""

Usage = dict[str, dict[str, int]]
"""Per kind and job (empty: of no one job) the bytes on the disk."""


def measure(home: Path) -> Usage:
    """Look at every file: slow, for a thread. What vanishes meanwhile counts nothing."""
    found: Usage = {}
    for kind, name in OF_JOBS.items():
        jobs = found[kind] = {}
        for entry in _entries(home / name):
            job = entry.name if entry.is_dir(follow_symlinks=False) else ""
            jobs[job] = jobs.get(job, 0) + size_bytes(Path(entry.path))
    for kind, name in OF_ALL.items():
        found[kind] = {"": size_bytes(home / name)}
    found["journal"] = {"": size_bytes(home / "journal")}
    return {kind: jobs for kind, jobs in found.items() if any(jobs.values())}


def of_job(home: Path, job: JobId, kinds: tuple[str, ...]) -> int:
    """What these kinds of a job take."""
    return sum(size_bytes(home / OF_JOBS[kind] / job) for kind in kinds)


def size_bytes(path: Path) -> int:
    """What a file, or all in a folder, takes on the disk, however deep a script has gone there. A
    path that is longer than the system takes counts nothing."""
    total, left = 0, [path]
    while left:
        each = left.pop()
        try:
            found = each.lstat()
        except OSError:
            continue
        total += found.st_blocks * 512
        if stat.S_ISDIR(found.st_mode):
            left += [Path(entry.path) for entry in _entries(each)]
    return total


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from list(entries)
    except OSError:
        return
