"""Whether a home is out of other accounts' reach."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from elasticd.errors import UsageError
from elasticd.pasting import pasted, quoted

if TYPE_CHECKING:
    from elasticd.settings.volumes import Volume

_LINKS = 40
"""So many links are followed on the way to a folder, as Linux does."""


def make_private(home: Path, mode: int = 0o700) -> None:
    """Make ``home``, and what is missing above it. Nobody else may write there, whatever the umask.

    Raises:
        OSError: it can't be made.
    """
    for folder in reversed(home.parents):
        folder.mkdir(0o755, exist_ok=True)
    home.mkdir(mode, exist_ok=True)


def make_inside(home: Path, folder: Path, mode: int = 0o777) -> None:
    """Make ``folder``, and what is missing between it and ``home``. A home that is gone, with its
    disk, isn't made again.

    Raises:
        OSError: it can't be made.
    """
    for each in reversed([folder, *folder.parents][: len(folder.relative_to(home).parts)]):
        each.mkdir(mode, exist_ok=True)


def ignoring_owners(home: Path, system: str = sys.platform) -> Volume | None:
    """The disk with it, if the system doesn't mind there who owns a file."""
    if system != "darwin":
        return None
    from elasticd.settings.volumes import without_owners  # Macs alone need what that loads

    return without_owners(home)


def refuse_ownerless(home: Path, me: int | None = None) -> None:
    """On a disk where owners don't count every account is the owner. No home is made and no daemon
    started there; one that runs, of an older version, still takes commands.

    Args:
        me: whose the home is to be; None: the account of this process.

    Raises:
        UsageError: it is on such a disk.
    """
    if (disk := ignoring_owners(home)) is None:
        return
    cure = "name a home on another disk"
    if disk.can_have_owners:
        account = account_name(os.geteuid() if me is None else me)
        cure = (
            "stop the daemon first if one runs ('elasticctl service stop', or 'elasticctl local"
            f" down'), then {quoted('sudo diskutil enableOwnership', disk.mounted)}, then"
            f" {quoted('sudo chown -R', account, home)}; or {cure}"
        )
    raise UsageError(
        f"{home} is on a disk on which macOS ignores who owns a file ({disk.mounted},"
        f" {disk.kind}), so that every account of this machine can read its keys and command the"
        f" daemon: {cure}"
    )


def refuse_open(home: Path, me: int | None = None) -> None:
    """Whoever owns a folder, or may write there, could replace the control socket, drop a job, or
    lay a link by which we write elsewhere. Whoever may replace a folder above it, or a link that
    leads there, could put another home in its place.

    Args:
        me: whose the home is to be; None: the account of this process.

    Raises:
        UsageError: another account than that or root could do so.
    """
    me = os.geteuid() if me is None else me
    for passed in _way_to(home):
        _refuse_passed(passed, home, me)
    found = home.stat()
    if found.st_uid not in (0, me):
        raise UsageError(
            f"{home} belongs to another account of this machine ({account_name(found.st_uid)}),"
            " which could command the daemon so: ask as that account, name another home, or"
            f" {quoted('chown -R', account_name(me), home)} if what is in it is to be trusted"
        )
    if found.st_mode & stat.S_IWOTH:
        raise UsageError(
            f"{home} can be written by every account of this machine, which could command the"
            f" daemon so: {pasted('chmod 700', home)}"
        )
    if found.st_mode & stat.S_IWGRP and not _is_alone(me, found.st_gid):
        raise UsageError(
            f"{home} can be written by the group {group_name(found.st_gid)}, which could command"
            f" the daemon so: {pasted('chmod 700', home)}"
        )


def _way_to(home: Path) -> Iterator[Path]:
    """The folders and links that are passed on the way to it, as the system goes."""
    path, links = Path("/"), 0
    left = [*reversed(home.absolute().parts[1:])]
    while left:
        name = left.pop()
        path = path.parent if name == ".." else path / name
        if path.is_symlink() and links < _LINKS:
            links += 1
            yield path
            target = path.readlink()
            path = Path("/") if target.is_absolute() else path.parent
            left += reversed(target.parts[target.is_absolute() :])
        elif left:
            yield path


def _refuse_passed(path: Path, home: Path, me: int) -> None:
    found = path.lstat()
    link = stat.S_ISLNK(found.st_mode)
    # Root may be told to work in a user's folder; but a link is laid by whoever wants to steer it.
    if found.st_uid not in (0, me) and (me or link):
        raise UsageError(
            f"{path}, on the way to {home}, belongs to another account of this machine"
            f" ({account_name(found.st_uid)}), which could put another home in its place: name"
            " another home"
        )
    if not link and found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UsageError(
            f"{path}, on the way to {home}, can be written by every account of this machine, which"
            f" could put another home in its place: {pasted('chmod o-w', path)}"
        )


def _is_alone(me: int, gid: int) -> bool:
    """Whether that group is the account's own, as many systems make one for each account."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    name = account_name(me)
    return group.gr_name == name and {*group.gr_mem} <= {name}


def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
