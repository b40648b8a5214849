"""What macOS says of a mounted disk, by its statfs(2). Python's own calls say less."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_IGNORE_OWNERSHIP = 0x0020_0000
"""MNT_IGNORE_OWNERSHIP of sys/mount.h."""

_WITH_OWNERS = ("apfs", "hfs")
"""Of these a disk can be told to mind owners (diskutil(8)); the others, exFAT or a share, store
none that this Mac knows."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A mounted disk.

    Attributes:
        mounted: where.
        kind: of which file system.
    """

    mounted: str
    kind: str

    @property
    def can_have_owners(self) -> bool:
        return self.kind in _WITH_OWNERS


class Statfs(ctypes.Structure):
    """As sys/mount.h of Darwin has it, with 64 bits for inodes."""

    _fields_ = (
        ("f_bsize", ctypes.c_uint32),
        ("f_iosize", ctypes.c_int32),
        ("f_blocks", ctypes.c_uint64),
        ("f_bfree", ctypes.c_uint64),
        ("f_bavail", ctypes.c_uint64),
        ("f_files", ctypes.c_uint64),
        ("f_ffree", ctypes.c_uint64),
        ("f_fsid", ctypes.c_int32 * 2),
        ("f_owner", ctypes.c_uint32),
        ("f_type", ctypes.c_uint32),
        ("f_flags", ctypes.c_uint32),
        ("f_fssubtype", ctypes.c_uint32),
        ("f_fstypename", ctypes.c_char * 16),
        ("f_mntonname", ctypes.c_char * 1024),
        ("f_mntfromname", ctypes.c_char * 1024),
        ("rest", ctypes.c_char * 32),
    )


AskStatfs = Callable[[bytes, Statfs], int]
"""Fills in what it is given; 0: it has."""


def statfs(folder: bytes, found: Statfs) -> int:
    """macOS's own."""
    libc = ctypes.CDLL(None)
    # Apple silicon has one alone; an Intel Python's "statfs" has another structure.
    call = getattr(libc, "statfs$INODE64", None) or libc.statfs
    status: int = call(folder, ctypes.byref(found))
    return status


def without_owners(path: Path, ask: AskStatfs = statfs) -> Volume | None:
    """The disk on which a file lies, if macOS takes whoever asks for the owner of
    all that is on it; None: it doesn't, or nothing is known."""
    found = Statfs()
    if ask(os.fsencode(path), found) != 0 or not found.f_flags & _IGNORE_OWNERSHIP:
        return None
    mounted = os.fsdecode(found.f_mntonname)
    # Else this was not read from where it lies.
    if not mounted.startswith("/"):
        return None
    return Volume(mounted, os.fsdecode(found.f_fstypename))
