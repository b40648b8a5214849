"""Getting bytes onto the medium.

On macOS ``fsync`` only hands them to the drive, which may keep them in its cache; ``F_FULLFSYNC``
waits for the medium (fsync(2) of Darwin).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Callable

_FULLFSYNC = 51
"""F_FULLFSYNC of Darwin's fcntl.h."""
_UNKNOWN = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENODEV)
"""Network and some removable file systems have no full flush; fsync is the most they offer. Any
other error is the disk's, and is told once: the fsync behind it may succeed."""


def sync_file(
    fd: int,
    here: str = sys.platform,
    control: Callable[[int, int], int] | None = None,
    sync: Callable[[int], None] | None = None,
) -> None:
    """Return once the bytes written to ``fd`` are on the medium.

    Raises:
        OSError: the device failed; nothing is known about what was written since the last success.
    """
    if here == "darwin":
        try:
            (control or fcntl.fcntl)(fd, _FULLFSYNC)
            return
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
    (sync or os.fsync)(fd)
