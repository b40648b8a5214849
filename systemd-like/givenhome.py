"""A service's home, which root makes for the account that the service runs as.

That account may swap what lies in its folders at any moment. So root works by descriptors: what it
gives away is the folder that it has made, and none to which the account's link leads.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

from elasticd.errors import UsageError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40
"""So many are followed on the way to a folder, as Linux does."""


def make_home(home: Path, user: str | None) -> None:
    """Make the daemon's state folder, and missing ones above it, for ``user`` (None: the caller).

    Raises:
        UsageError: there is no such user, or its links lead to a folder of another account.
        OSError: a folder can't be made or given away.
    """
    try:
        account = pwd.getpwnam(user) if user is not None else None
    except KeyError:
        raise UsageError(f"there is no user {user!r} on this machine") from None
    missing = [folder for folder in reversed([home, *home.parents]) if not folder.exists()]
    if account is None or os.geteuid() != 0:
        for folder in missing:
            folder.mkdir(mode=_mode(folder, home))
        return
    if not missing:
        return
    fd = _opened(missing[0].parent, account)
    try:
        for folder in missing:
            made = _made(fd, folder, _mode(folder, home), account)
            os.close(fd)
            fd = made
    finally:
        os.close(fd)


def _mode(folder: Path, home: Path) -> int:
    return 0o700 if folder == home else 0o755


def _opened(folder: Path, account: pwd.struct_passwd) -> int:
    """A descriptor of it. Where a link may be another account's, it has to lead to a folder of
    ``account``, which could make others in that itself."""
    fd, links, theirs = os.open("/", _FOLDER), 0, False
    left = [*reversed(folder.absolute().parts[1:])]
    with contextlib.ExitStack() as failing:
        failing.callback(lambda: os.close(fd))
        while left:
            name = left.pop()
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode) and links < _LINKS:
                # In a folder of others it may be replaced between two looks.
                theirs = theirs or found.st_uid != 0 or os.fstat(fd).st_uid != 0
                links += 1
                target = Path(os.readlink(name, dir_fd=fd))
                left += reversed(target.parts[target.is_absolute() :])
                if not target.is_absolute():
                    continue
                name = "/"
            inner = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        if theirs and os.fstat(fd).st_uid != account.pw_uid:
            raise UsageError(
                f"{folder}: a link on the way to it is not root's and leads to a folder that isn't"
                f" {account.pw_name}'s: name the home without that link"
            )
        failing.pop_all()
    return fd


def _made(parent: int, folder: Path, mode: int, account: pwd.struct_passwd) -> int:
    """A descriptor of a new folder of that account."""
    os.mkdir(folder.name, mode, dir_fd=parent)
    fd = os.open(folder.name, _FOLDER, dir_fd=parent)
    try:
        if os.fstat(fd).st_uid != 0 or os.listdir(fd):
            raise UsageError(f"{folder}: another account has put its own in that place: try again")
        os.fchown(fd, account.pw_uid, account.pw_gid)
    except BaseException:
        os.close(fd)
        raise
    return fd
