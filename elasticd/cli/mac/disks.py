"""A probe of the disk: how long a full flush takes, idle and beside a large write."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from elasticd.checkpoints.medium import sync_file
from elasticd.checkpoints.sequential import write_all
from elasticd.preflight.finding import ProbeFinding, failed, passed, warned
from elasticd.settings.diskroom import refusal

FLUSHES = 30
LARGE_BYTES = 512 << 20
_PIECE = bytes(8 << 20)
_SLOW_SECONDS = 0.1
_SILENT_SECONDS = 2.0
"""A daemon whose journal takes so long falls silent."""


def flush(
    folder: Path,
    sync: Callable[[int], None] = sync_file,
    flushes: int = FLUSHES,
    large_bytes: int = LARGE_BYTES,
    clock: Callable[[], float] = time.monotonic,
) -> ProbeFinding:
    """Times of a journal's flush; the large write is flushed once, as a shard is."""
    try:
        idle = _flushes(folder / "small", sync, flushes, clock)
        beside = _beside(folder, sync, flushes, large_bytes, clock)
    except OSError as error:
        return failed(refusal(error, folder), "Make room on that disk")
    value = (
        f"idle {_times(idle)}; beside a write of {large_bytes >> 20} MiB {_times(beside)}"
        " (median, longest)"
    )
    if max(beside) > _SILENT_SECONDS:
        return warned(
            value,
            "Nodes fall silent while their checkpoints are written: put the home on a faster disk,"
            " the internal one say",
        )
    if statistics.median(idle) > _SLOW_SECONDS:
        return warned(value, "Put the home on a faster disk: each decision waits for one flush")
    return passed(value)


def _times(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1000:.1f}, {max(seconds) * 1000:.1f} ms"


def _flushes(
    path: Path, sync: Callable[[int], None], count: int, clock: Callable[[], float]
) -> list[float]:
    found = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(count):
            write_all(fd, b"x" * 200)
            begun = clock()
            sync(fd)
            found.append(clock() - begun)
    finally:
        os.close(fd)
    return found


def _beside(
    folder: Path,
    sync: Callable[[int], None],
    count: int,
    large_bytes: int,
    clock: Callable[[], float],
) -> list[float]:
    """Flushes from when the large write has begun until it is done, ``count`` at least."""
    wrong: list[OSError] = []
    begun = threading.Event()

    def write() -> None:
        try:
            fd = os.open(folder / "large", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for _ in range(large_bytes // len(_PIECE)):
                    write_all(fd, _PIECE)
                    begun.set()
                sync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            wrong.append(error)
        finally:
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    begun.wait()
    found: list[float] = []
    while writer.is_alive() or len(found) < count:
        found += _flushes(folder / "small", sync, 1, clock)
    writer.join()
    (folder / "large").unlink(missing_ok=True)
    if wrong:
        raise wrong[0]
    return found
