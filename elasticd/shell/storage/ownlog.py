"""The daemon's own log, if what it prints goes to a file of its home: of launchd's service, say.

Nobody rotates that: launchd holds the file open itself (launchd.plist(5), StandardOutPath).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from elasticd.supervision.logs import ROTATE_AT_BYTES, RotatedLog

NAME = "daemon.log"
PRINTED = (1, 2)


def rotate(
    home: Path, printed: Iterable[int] = PRINTED, limit_bytes: int = ROTATE_AT_BYTES
) -> bool:
    """Rotate it if it is too long; ``printed``: the descriptors to which we print. Whether it was.

    Raises:
        OSError: the disk is full or broken.
    """
    path, rotates = home / NAME, False
    with contextlib.suppress(FileNotFoundError):
        for fd in printed:
            if os.path.samestat(os.fstat(fd), path.stat()):
                # Else we would go on where the file's end was, behind a hole.
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
                rotates = True
    return rotates and RotatedLog(path, limit_bytes).rotate() is not None
