"""What lies where in a home: folders, of which each may be a link to one on another disk, and files
without which no daemon starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from elasticd.checkpoints.apart import explained, is_another
from elasticd.launchd.otherdisk import mounted_late

FOLDERS = (
    "archives", "cache", "checkpoints", "clones", "events", "history", "jobs", "logs", "output",
    "outputs", "reached", "work",
)  # fmt: skip
SIGNED = ("archives", "checkpoints", "events", "history", "logs", "output", "outputs")
"""Those of them in which a sign tells the folder from the mount point of a disk that is away: what
is in the others is made again, or a person lays it there."""
FILES = ("children.json", "daemon.json", "events/_shelf", "journal.begun", "lock")


def misplaced(home: Path, system: str = sys.platform) -> Iterator[tuple[Path, str, str]]:
    """Where something else is in the place of a folder or a file: that, the cause and the cure."""
    for path in (home / name for name in FILES):
        if path.is_dir():
            yield path, "is a folder, not a file", "Put it aside; the daemon makes its own"
    for path in (home / name for name in FOLDERS):
        if not os.path.lexists(path):
            continue
        if path.is_dir():
            if not is_another(path):
                continue
            cause, cure = explained(path)
        elif path.is_symlink():
            cause = f"leads to {os.readlink(path)}, where no folder is"
            late = mounted_late(path, system)
            cure = f"Mount the disk that it is on, or make the folder{late and f'. {late}'}"
        else:
            cause, cure = "is no folder", "Put it aside; the daemon makes its own"
        yield path, cause, cure
