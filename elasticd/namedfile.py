"""A file that the user names to be written: what may be replaced there, and what never is.

A renaming replaces whatever has the name. As root that would be a device of the whole machine.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.settings.rules import one_line

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_stdout(path: Path, option: str) -> None:
    """Raises UsageError: other programs call their stdout so. Here a file would have that name."""
    if path == Path("-"):
        raise UsageError(f"{option} -: nothing is written to stdout; name another place")


def place_of(path: Path, *, overwrite: bool) -> Path:
    """The file that is to be written, or replaced, where the user says ``path``: a link is
    followed, so that it stays one.

    Raises:
        UsageError: something is there that is no file, or is not to be replaced; or there is no
            such folder.
    """
    shown = one_line(str(path))
    if not path.parent.is_dir():
        raise UsageError(f"{one_line(str(path.parent))}: there is no such folder")
    refuse_no_file(path)
    if not os.path.lexists(path):
        return path
    if not overwrite:
        raise UsageError(f"{shown}: is there already; name another file, or say --overwrite")
    if not path.is_symlink():
        return path
    if path.lstat().st_uid not in (os.geteuid(), 0):
        raise UsageError(f"{shown}: is a link of another account; name another file")
    try:
        place = path.resolve(strict=True)
    except (OSError, RuntimeError):  # the latter: links in a ring
        raise UsageError(f"{shown}: is a link that leads to no file; name another") from None
    refuse_no_file(place)
    return place


def refuse_no_file(path: Path) -> None:
    """Raises UsageError: what is there, or where a link there leads, is no file, or nobody can
    say."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return
        raise UsageError(f"{one_line(str(path))}: {error.strerror}") from None
    shown = one_line(str(path))
    if stat.S_ISDIR(mode):
        raise UsageError(f"{shown}: is a folder")
    if not stat.S_ISREG(mode):
        kind = next((name for matches, name in _KINDS if matches(mode)), "something else")
        raise UsageError(f"{shown}: is {kind}, and no file; name another")
