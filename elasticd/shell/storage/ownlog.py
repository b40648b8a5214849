"""The daemon's own log, if what it prints goes to a file of its home, or to that which launchd's
service has where the home is on another disk.

Nobody rotates that: launchd holds the file open itself (launchd.plist(5), StandardOutPath).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO, cast

from elasticd.launchd.otherdisk import logs_aside
from elasticd.supervision.logs import ROTATE_AT_BYTES, RotatedLog

NAME = "daemon.log"
PRINTED = (1, 2)


class _Forgiving(io.TextIOBase):
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


def forgiving(file: TextIO) -> TextIO:
    """A log that loses lines when its disk is full, since no line is worth the process."""
    return cast(TextIO, _Forgiving(file))


def rotate(
    home: Path, printed: Iterable[int] = PRINTED, limit_bytes: int = ROTATE_AT_BYTES
) -> bool:
    """Rotate it if it is too long; ``printed``: the descriptors to which we print. Whether it was.

    Raises:
        OSError: the disk is full or broken.
    """
    rotated = [
        RotatedLog(path, limit_bytes).rotate() is not None
        for path in files(home)
        if _appends(path, printed)
    ]
    return any(rotated)


def files(home: Path) -> tuple[Path, ...]:
    """Those that may be it."""
    return home / NAME, *logs_aside(Path(os.path.expanduser("~")), os.geteuid())


def close_to_others(home: Path, printed: Iterable[int] = PRINTED) -> None:
    """Have no other account read it: launchd may make it as everybody's files are."""
    for path in files(home):
        for fd in _printing_to(path, printed):
            found = os.fstat(fd)
            if found.st_uid == os.geteuid() and found.st_mode & 0o077:
                os.fchmod(fd, stat.S_IMODE(found.st_mode) & ~0o077)


def _appends(path: Path, printed: Iterable[int]) -> bool:
    """Whether we print there; from now on to its end, wherever that is."""
    fds = _printing_to(path, printed)
    for fd in fds:
        # Else we would go on where the file's end was, behind a hole.
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return bool(fds)


def _printing_to(path: Path, printed: Iterable[int]) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        there = path.stat()
        return [fd for fd in printed if os.path.samestat(os.fstat(fd), there)]
    return []
