"""How large a disk is, how much of it is free, and what is said of one that is full.

macOS's statvfs(3) counts blocks in 32 bits, so that a volume of 16 TiB seems to have none, and
Python before 3.13 may ask it (cpython, issue 87804). Its statfs(2) counts in 64.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elasticd.settings.volumes import AskStatfs, Statfs, statfs

_WRAPS_AT = 1 << 32
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a disk says that is full, or whose quota is."""
_FEW_FILES = 16
"""As many may have gone again since the disk refused."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    total_bytes: int
    free_bytes: int
    """For an account that isn't root's."""
    free_files: int | None
    """How many more it takes, however small; None: it doesn't say, or has no such limit."""


def room_of(
    folder: Path,
    system: str = sys.platform,
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    ask: AskStatfs = statfs,
) -> DiskRoom:
    """Of the disk with that folder. ``ask`` is macOS's alone.

    Raises:
        OSError: it can't be asked.
    """
    told = statvfs(folder)
    block, total, free = told.f_frsize, told.f_blocks, told.f_bavail
    files, free_files = told.f_files, told.f_favail
    if system == "darwin":
        files, found = 0, Statfs()
        answered = ask(os.fsencode(folder), found) == 0
        # Only what agrees with the other call, as far as that counts, was read from where it lies.
        if answered and (found.f_bsize, found.f_blocks % _WRAPS_AT) == (block, total % _WRAPS_AT):
            total, free = found.f_blocks, found.f_bavail
            files, free_files = found.f_files, found.f_ffree
    return DiskRoom(total * block, free * block, free_files if files else None)


def refusal(error: OSError, path: Path | None = None) -> str:
    """What the disk refuses, and where: at ``path``, if the error doesn't say. One that takes no
    more files says that it has no space, however much is free: then with the cure."""
    where, said = error.filename or path, error.strerror or str(error)
    if where is None:
        return said
    said = f"{where}: {said}"
    if error.errno in FULL and takes_no_more(Path(str(where))):
        return f"{said} (its disk takes no more files: remove many small ones there)"
    return said


def takes_no_more(path: Path) -> bool:
    """Whether its disk has room for no more files, however small."""
    for folder in (path, *path.absolute().parents):
        try:
            left = room_of(folder).free_files
        except OSError:  # it isn't there
            continue
        return left is not None and left < _FEW_FILES
    return False
