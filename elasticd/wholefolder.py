"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from elasticd.removing import remove_tree

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to write into, which takes its place if all goes well, and goes if
    not. ``folder`` may be there if it is empty; the parent must exist. Who may look into it the
    umask says, or whoever of our account has made it: what lay there later is perhaps another's.

    It is locked meanwhile. What a killed process has left of one, the next for ``folder`` removes.

    Raises:
        OSError: it can't be made, or can't take that place.
    """
    mode = _own_mode(folder)
    _remove_leftovers(folder)
    beside, lock = _made(folder)
    try:
        yield beside
        if mode is not None:
            beside.chmod(mode)
        beside.rename(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            remove_tree(beside)
        raise
    finally:
        os.close(lock)


def _made(folder: Path) -> tuple[Path, int]:
    """A new folder, and a descriptor of it that keeps others from removing it."""
    while True:
        beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        beside.mkdir()
        with contextlib.suppress(FileNotFoundError, BlockingIOError):  # it is being removed already
            fd = os.open(beside, _FOLDER)
            try:
                _lock(fd)
                beside.lstat()  # it may have gone before that
                return beside, fd
            except OSError:
                os.close(fd)
                raise


def _lock(fd: int) -> bool:
    """Whether it is ours; not so on a disk without locks.

    Raises:
        BlockingIOError: it is another's.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _remove_leftovers(folder: Path) -> None:
    ours = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-f]{{8}}")
    with contextlib.suppress(OSError):  # what can't be removed is no reason to make none
        for left in [path for path in folder.parent.iterdir() if ours.fullmatch(path.name)]:
            if _own_mode(left) is not None:
                _remove_unless_held(left)


def _remove_unless_held(left: Path) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(left, _FOLDER)
        try:
            if _lock(fd):
                remove_tree(left)
        finally:
            os.close(fd)


def _own_mode(folder: Path) -> int | None:
    """Of a folder of ours that is there."""
    with contextlib.suppress(FileNotFoundError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            return stat.S_IMODE(found.st_mode)
    return None
