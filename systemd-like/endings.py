"""Whether a process is ending already, which a signal of ours would hide.

A process that was killed closes its sockets some time before its parent can reap it, and others may
act on that sooner than we learn of its end.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

_EXITING = 0x4
"""PF_EXITING of the kernel's include/linux/sched.h, from the beginning of do_exit on."""
_STATE, _FLAGS, _EXIT_CODE = 0, 6, 49
"""Fields of /proc/PID/stat (proc(5)), counted from the one after the command's name."""
_PENDING = ("SigPnd:", "ShdPnd:")


def ending_status(pid: int) -> int | None:
    """How the process ``pid``, which nobody has reaped, ends or has ended: its exit code, or minus
    the signal. None: it isn't ending, or the system doesn't tell (macOS)."""
    if sys.platform != "linux":
        return None
    folder = Path("/proc") / str(pid)
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text()
    except OSError:
        return None
    if fields[_STATE] in "ZX" or int(fields[_FLAGS]) & _EXITING:
        code = int(fields[_EXIT_CODE])
        return -(code & 0x7F) if code & 0x7F else code >> 8
    # It was sent, and comes into force when the process gets the processor.
    pending = [line.split()[1] for line in status.splitlines() if line.startswith(_PENDING)]
    killed = any(int(mask, 16) & 1 << signal.SIGKILL - 1 for mask in pending)
    return -signal.SIGKILL if killed else None
