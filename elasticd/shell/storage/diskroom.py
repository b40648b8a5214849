"""How large a disk is, and how much of it is free.

macOS's statvfs(3) counts blocks in 32 bits, so that a volume of 16 TiB seems to have none, and
Python before 3.13 may ask it (cpython, issue 87804). Its statfs(2) counts in 64.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elasticd.settings.volumes import AskStatfs, Statfs, statfs

_WRAPS_AT = 1 << 32


@dataclass(frozen=True, slots=True)
class DiskRoom:
    total_bytes: int
    free_bytes: int
    """For an account that isn't root's."""


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
    if system == "darwin":
        found = Statfs()
        answered = ask(os.fsencode(folder), found) == 0
        # Only what agrees with the other call, as far as that counts, was read from where it lies.
        if answered and (found.f_bsize, found.f_blocks % _WRAPS_AT) == (block, total % _WRAPS_AT):
            total, free = found.f_blocks, found.f_bavail
    return DiskRoom(total * block, free * block)
