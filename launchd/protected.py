"""Folders that macOS keeps from services: what lies there a daemon can't read.

A process outside of a terminal or an app gets EPERM in Documents, Desktop and Downloads of a
person's home, in what iCloud and other clouds keep there, and on removable disks, as nobody is
there to be asked. launchd would start the daemon again for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from elasticd.errors import UsageError
from elasticd.supervision.program import own_program

PROTECTED = (
    "Documents", "Desktop", "Downloads", "Library/Mobile Documents", "Library/CloudStorage",
)  # fmt: skip
"""Of a person's home; the last two are iCloud Drive, and that of Dropbox, OneDrive and Google."""
VOLUMES = Path("/Volumes")
"""Where other disks are. Before a program reads removable ones, or a network's, macOS asks."""


def below(path: Path, folder: Path) -> tuple[str, ...] | None:
    """The names that lead from a folder down to a path; None: it doesn't lie in there.

    As macOS sees it: its disks take ``documents`` for ``Documents``, and it has two names for some
    folders: ``/Users`` is ``/System/Volumes/Data/Users``, too. Neither has to be there.
    """
    for base in (folder, *folder.parents):
        names = _folded(folder.relative_to(base))
        for above in (path, *path.parents):
            rest = path.relative_to(above)
            if _folded(rest)[: len(names)] == names and _is_same(above, base):
                return rest.parts[len(names) :]
    return None


def _folded(path: Path) -> list[str]:
    return [part.casefold() for part in path.parts]


def _is_same(one: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return False


def require_open(user_home: Path, places: Iterable[tuple[str, Path]]) -> None:
    """``places``: what each is, and where.

    Raises:
        UsageError: one of them lies where a service may not look.
    """
    for what, path in places:
        for each in dict.fromkeys((path.absolute(), path.resolve())):
            for name in PROTECTED:
                if below(each, user_home / name) is not None:
                    raise UsageError(
                        f"{what} {path} lies in {name}, where macOS lets no service read:"
                        f" move it, to {user_home / 'elasticd'} say"
                    )


def doubts(places: Iterable[tuple[str, Path]], program: str) -> str:
    """What to say of places where a service may not be let in; empty: there are none. ``program``:
    which one macOS would have to let in."""
    found = [
        f"{what} {path}" for what, path in places if below(path.resolve(), VOLUMES) is not None
    ]
    if not found:
        return ""
    return (
        f"\n{' and '.join(found)}: macOS may let no service read on that disk. If the service's log"
        f" says 'Operation not permitted', {_let_in(program)}"
    )


def kept_out(
    error: Exception, system: str = sys.platform, program: Callable[[], str] = own_program
) -> str:
    """The cure of an ``error`` by which macOS keeps a service from what it was to read; empty: it
    is another. Where the account may not read a file the number is EACCES."""
    if system != "darwin" or getattr(error, "errno", None) != errno.EPERM:
        return ""
    return f"macOS keeps services out of that folder: move it, or {_let_in(program())}"


def _let_in(program: str) -> str:
    """What to do where macOS keeps ``program`` out."""
    where = "System Settings > Privacy & Security > Full Disk Access"
    return f"add this program in {where}: {program}"
