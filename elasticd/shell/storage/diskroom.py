"""How large a disk is, and how much of it is free.

macOS's statvfs(3) counts blocks in 32 bits, so that a volume of 16 TiB seems to have none, and
Python before 3.13 may ask it (cpython, issue 87804). Its statfs(2) counts in 64.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_WRAPS_AT = 1 << 32


class Statfs(ctypes.Structure):
    """As sys/mount.h of Darwin has it, with 64 bits for inodes."""

    _fields_ = (
        ("f_bsize", ctypes.c_uint32),
        ("f_iosize", ctypes.c_int32),
        ("f_blocks", ctypes.c_uint64),
        ("f_bfree", ctypes.c_uint64),
        ("f_bavail", ctypes.c_uint64),
        ("rest", ctypes.c_char * 2136),
    )


AskStatfs = Callable[[bytes, Statfs], int]
"""Fills in what it is given; 0: it has."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    total_bytes: int
    free_bytes: int
    """For an account that isn't root's."""


def room_of(
    folder: Path,
    system: str = sys.platform,
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
    statfs: AskStatfs | None = None,
) -> DiskRoom:
    """Of the disk with that folder. ``statfs`` is macOS's.

    Raises:
        OSError: it can't be asked.
    """
    told = statvfs(folder)
    block, total, free = told.f_frsize, told.f_blocks, told.f_bavail
    if system == "darwin":
        found = Statfs()
        answered = (statfs or _statfs)(os.fsencode(folder), found) == 0
        # Only what agrees with the other call, as far as that counts, was read from where it lies.
        if answered and (found.f_bsize, found.f_blocks % _WRAPS_AT) == (block, total % _WRAPS_AT):
            total, free = found.f_blocks, found.f_bavail
    return DiskRoom(total * block, free * block)


def _statfs(folder: bytes, found: Statfs) -> int:
    libc = ctypes.CDLL(None)
    # Apple silicon has one alone; an Intel Python's "statfs" has another structure.
    call = getattr(libc, "statfs$INODE64", None) or libc.statfs
    status: int = call(folder, ctypes.byref(found))
    return status
