"""What a job's process and the daemon of its node show each other in the job's output folder.

Two files in the library's own folder there. One is locked by the daemon while it brings what main
before had written; a lock ends with its holder. The other's time says when a script asked last
for copies on other nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from elasticd.outputs import OWN_FOLDER, partial_name

_COMING, _WANTED = "coming", "wanted"
_LOOK_SECONDS = 0.02


class Coming:
    """While it is held, what main before had written is on its way to this folder."""

    def __init__(self, output: Path) -> None:
        """Raises OSError: the disk refuses, or something else has the place."""
        folder = output / OWN_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._path, fresh = folder / _COMING, folder / partial_name()
        self._fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            # It has its name once it is locked: nobody finds it open.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fresh.rename(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            os.close(self._fd)
            raise

    def close(self) -> None:
        """It is here, or won't come."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                # A later one may have the name by now.
                if os.path.samestat(os.fstat(self._fd), os.lstat(self._path)):
                    self._path.unlink()
            os.close(self._fd)
            self._fd = -1


def await_coming(output: Path, seconds: float, goes_on: Callable[[], bool]) -> bool:
    """Wait as long as something is on its way to a folder; False: it still is after so long.
    ``goes_on``: whether there is still a reason to wait."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(output / OWN_FOLDER / _COMING, flags)
    except OSError:
        return True
    until = time.monotonic() + seconds
    try:
        while goes_on():
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= until:
                    return False
                time.sleep(_LOOK_SECONDS)
            except OSError:
                return True  # this disk knows no locks
        return True
    finally:
        os.close(fd)


def want_copies(output: Path) -> None:
    """Ask for copies of what is there, soon. A disk that refuses costs only the haste."""
    with contextlib.suppress(OSError):
        folder = output / OWN_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _WANTED).touch()
        now = time.time_ns()  # finer than what a system notes by itself
        os.utime(folder / _WANTED, ns=(now, now))


def wanted_ns(output: Path) -> int:
    """When that was asked last; 0: never."""
    with contextlib.suppress(OSError):
        return (output / OWN_FOLDER / _WANTED).lstat().st_mtime_ns
    return 0
