"""That a daemon ended because its disk refused, for those who ask later why it doesn't run.

The file has its size from the daemon's start on, and is only written over: a full disk has no room
for more.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from elasticd.errors import DiskError
from elasticd.settings.diskroom import refusal

FILE_NAME = "ended.json"
_BYTES = 4096
_ERROR_CHARS = 500
"""Of which JSON makes six times as many bytes at most."""


@dataclass(frozen=True, slots=True)
class DiskEnd:
    """When it ended, in Unix seconds, and what the disk refused, with the path."""

    time: float
    error: str


def begin(home: Path) -> None:
    """A daemon runs: what there was is over. Takes the room that :func:`note` needs."""
    _write(home, {}, os.O_CREAT)


def note(home: Path, error: BaseException, now: float) -> None:
    """It ends of ``error``; nothing is noted unless that is the disk's."""
    text = refusal(error) if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError | DiskError):
        _write(home, {"time": now, "error": text[:_ERROR_CHARS]})


def read(home: Path) -> DiskEnd | None:
    """What the last daemon that ran here ended of; None if that was anything else."""
    try:
        found = json.loads((home / FILE_NAME).read_bytes())
        return DiskEnd(float(found["time"]), str(found["error"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(home: Path, found: dict[str, object], flags: int = 0) -> None:
    # Nothing depends on it, and what refuses is the disk that is told of.
    with contextlib.suppress(OSError):
        fd = os.open(home / FILE_NAME, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
        try:
            os.pwrite(fd, json.dumps(found).encode().ljust(_BYTES), 0)
        finally:
            os.close(fd)
