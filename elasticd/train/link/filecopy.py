"""Copies of files that share their blocks until one is written, where the disk can do that.

APFS, Btrfs and XFS can; ext4 can't, and there the bytes are copied. Never a hard link: what is
written through one name would be seen through the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FICLONE = 0x40049409
"""``_IOW(0x94, 9, int)`` of linux/fs.h."""

CloneFile = Callable[[Path, Path], None]
"""Makes the second, which isn't there, of the first. OSError: this disk or system can't."""


def clone_on_linux(source: Path, target: Path) -> None:
    """See ioctl_ficlone(2)."""
    import fcntl

    with source.open("rb") as old, target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            target.unlink()
            raise


def clone_on_macos(source: Path, target: Path, library: Any = None) -> None:
    """See clonefile(2); ``library`` has it, else the system's own."""
    library = library or ctypes.CDLL(None, use_errno=True)
    if library.clonefile(os.fsencode(source), os.fsencode(target), ctypes.c_uint32(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source), None, str(target))


system_clone: CloneFile = clone_on_macos if sys.platform == "darwin" else clone_on_linux


def copy_file(source: Path, target: Path, clone: CloneFile = system_clone) -> None:
    """Make ``target``, which isn't there, with the content, the mode and the times of ``source``.

    The times come last: a copy that was interrupted shows by them.

    Raises:
        OSError: it can't be read or written.
    """
    try:
        clone(source, target)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        shutil.copyfile(source, target)
    shutil.copystat(source, target)
