"""What a job's process and the daemon of its node show each other in the job's output folder.

Files in the library's own folder there. One is locked by the daemon while it brings what main
before had written; a lock ends with its holder. Another's time says when a script asked last
for copies on other nodes. A third says what lay there when a process was given a state that others
have come to: none of it is that process's own, and main's files count more. By two more a process
beside another rank's asks for main's files, and hears that they are there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack

from elasticd.outputs import OWN_FOLDER, list_files, partial_name

_COMING, _WANTED, _GIVEN = "coming", "wanted", "given"
_ASKED, _CAME = "asked", "came"
_OPEN_FILES = "/dev/fd"
"""Of the process that looks there."""
_MOST_GIVEN_BYTES = 16 << 20
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
    _set_time(output, _WANTED, time.time_ns())


def wanted_ns(output: Path) -> int:
    """When that was asked last; 0: never."""
    return _time_ns(output / OWN_FOLDER / _WANTED)


def ask_for_files(output: Path) -> int:
    """Ask, where another node is main, for what that has written; when. 0: the disk refuses."""
    _set_time(output, _ASKED, time.time_ns())
    return asked_ns(output)


def asked_ns(output: Path) -> int:
    """When that was asked last; 0: never."""
    return _time_ns(output / OWN_FOLDER / _ASKED)


def note_came(output: Path, asked: int) -> None:
    """What was asked for then is there, as far as it can be had."""
    _set_time(output, _CAME, asked)


def have_come(output: Path, asked: int) -> bool:
    """Whether that was noted."""
    return _time_ns(output / OWN_FOLDER / _CAME) == asked


def note_given(output: Path) -> None:
    """This process is given a state to which others have come without it: what lies here is older,
    but for files that it holds open. A disk that refuses that keeps them until they are written."""
    with contextlib.suppress(OSError):
        files, held = list_files(output).files, _held_open()
        marks = {f.name: f.mark for f in files if not f.managed and f.inode not in held}
        folder = output / OWN_FOLDER
        if not marks and not (folder / _GIVEN).exists():
            return
        folder.mkdir(exist_ok=True)
        beside = folder / partial_name()
        beside.write_bytes(msgpack.packb(marks))
        os.replace(beside, folder / _GIVEN)


def given(output: Path) -> dict[str, Any]:
    """What lay here then, by name; :attr:`OutputFile.mark` of what is unchanged is the same."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(output / OWN_FOLDER / _GIVEN, flags), "rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                said = msgpack.unpackb(file.read(_MOST_GIVEN_BYTES))
                return said if isinstance(said, dict) else {}
    except (OSError, ValueError, msgpack.UnpackException):
        pass
    return {}


def given_ns(output: Path) -> int:
    """When that was noted last; 0: never."""
    return _time_ns(output / OWN_FOLDER / _GIVEN)


def _held_open() -> set[int]:
    """The inodes of the files that this process holds open."""
    found = set()
    for name in os.listdir(_OPEN_FILES):
        with contextlib.suppress(OSError, ValueError):
            found.add(os.fstat(int(name)).st_ino)
    return found


def _set_time(output: Path, name: str, at: int) -> None:
    with contextlib.suppress(OSError):
        path = output / OWN_FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(at, at))  # finer than what a system notes by itself


def _time_ns(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0
