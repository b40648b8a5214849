"""Whether what somebody puts into a home is there as a whole by now."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

QUIET_SECONDS = 2.0
"""What was written in place is taken when it has been left alone for so long."""


def seconds_until_whole(path: Path, written_at: float, *, whole: bool) -> float:
    """0 if nobody is writing there any more, else after how long to look again.

    Args:
        written_at: when that was done last, Unix seconds.
        whole: nothing was written since it was renamed.
    """
    if whole:
        return 0.0
    quiet = time.time() - written_at
    if quiet < 0:  # from the future: a clock was set back, or the time was made up
        quiet = QUIET_SECONDS
    if quiet < QUIET_SECONDS:
        return QUIET_SECONDS - quiet
    return QUIET_SECONDS if is_being_written(path) else 0.0


def is_being_written(path: Path) -> bool:
    """Whether a process has the file open for writing. Linux tells (a read lease is refused then:
    fcntl(2)); elsewhere the answer is no."""
    if sys.platform != "linux":
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # gone, or not to be read, which is said when it is
        return False
    try:
        # Who opens the file for writing while we hold the lease makes the kernel send us a signal,
        # by default a deadly one.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:  # a file system without leases, or somebody else's file
        return False
    finally:
        os.close(fd)
    return False
