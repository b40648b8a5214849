"""Getting bytes onto the medium.

On macOS ``fsync`` only hands them to the drive, which may keep them in its cache, and write them in
another order. ``F_FULLFSYNC`` waits for the medium, for all that was handed to that drive before.
``F_BARRIERFSYNC`` only has later writes reach the medium later (fcntl(2) of Darwin).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable

_FULLFSYNC = 51
"""F_FULLFSYNC of Darwin's fcntl.h."""
_BARRIERFSYNC = 85
"""F_BARRIERFSYNC of the same; HFS and APFS know it."""
_UNKNOWN = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV)
"""Network and some removable file systems know no such call; fsync is the most they offer. Any
other error is the disk's, and is told once: the fsync behind it may succeed."""


Control = Callable[[int, int], int]
Sync = Callable[[int], None]


def sync_file(
    fd: int, here: str = sys.platform, control: Control | None = None, sync: Sync | None = None
) -> None:
    """Return once the bytes written to ``fd`` are on the medium, and on macOS those that went to
    :func:`order_file` before, of the same disk.

    Raises:
        OSError: the device failed; nothing is known about what was written since the last success.
    """
    if here != "darwin" or not _knows(control, fd, _FULLFSYNC):
        (sync or os.fsync)(fd)


def order_file(
    fd: int, here: str = sys.platform, control: Control | None = None, sync: Sync | None = None
) -> None:
    """Have the bytes written to ``fd`` on the medium before anything that is written later. They
    are there for certain when a :func:`sync_file` has returned that was begun later, of anything on
    that disk; elsewhere than on macOS at once.

    Raises:
        OSError: as there.
    """
    if here != "darwin" or not _knows(control, fd, _BARRIERFSYNC):
        sync_file(fd, here, control, sync)


def _knows(control: Control | None, fd: int, call: int) -> bool:
    """Done; False: the file system knows no such call."""
    try:
        (control or fcntl.fcntl)(fd, call)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        return False
    return True
