"""When a process was started, as the kernel counts it: with the pid that names it for ever. And
whether it has ended.

Not in seconds of the wall clock. Linux counts from the boot, and tells the time of the boot by the
wall clock of now, so that setting the clock moves every start time (proc_pid_stat(5), field 22).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

TOLERANCE_SECONDS = 2.0
"""Of start times by the wall clock, which is all that earlier versions wrote down: Linux rounds the
boot time to a second. A pid can't be given out twice within this time, since the kernel counts
through all others first."""

UNSEEN = (psutil.Error, OSError, RuntimeError, SystemError)
"""What psutil raises of a process that has gone, or that it can't look at. On macOS it passes on
what the kernel says of one that is just ending, or has closed a file meanwhile: any OSError, and a
RuntimeError where that says no reason (psutil, issues 1512 and 2116), a SystemError where it has
failed itself (of a command line, in 7.2; issue 2854)."""


def birth(
    pid: int,
    platform: str = sys.platform,
    process: Callable[[int], psutil.Process] = psutil.Process,
) -> str:
    """Never the same for two processes with that pid; ``process`` looks at one where no file tells.

    Raises:
        psutil.Error: there is none, or it can't be looked at.
    """
    if platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            raise psutil.NoSuchProcess(pid) from None
        except OSError:
            raise psutil.AccessDenied(pid) from None
        ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])
        return f"{_boot()}:{ticks}"
    # As the kernel noted it then. create_time() is shifted when the clock is set (psutil 7.1).
    noted: float | None = getattr(process(pid), "_ident")[1]  # noqa: B009 (not in its types)
    if noted is None:  # psutil looks at one that has just ended, and is not told
        raise psutil.ZombieProcess(pid)
    return f"{noted:.6f}"


@functools.cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_same(pid: int, born: str, create_time: float) -> bool:
    """Whether the process that has ``pid`` now was born then; ``born`` is empty where an earlier
    version wrote only the time by the wall clock.

    Raises:
        psutil.Error: there is none, or it can't be looked at.
    """
    if born:
        return birth(pid) == born
    return abs(psutil.Process(pid).create_time() - create_time) < TOLERANCE_SECONDS


def birth_or_none(pid: int) -> str:
    """As :func:`birth`; empty of a process that has ended, and was never to be found again."""
    try:
        return birth(pid)
    except UNSEEN:
        return ""


def has_ended(process: psutil.Process) -> bool:
    """Whether nothing of it runs any more, be it that its parent hasn't asked yet.

    Of what was killed the first thread may be gone while others still wait for a disk. Until they
    are gone too, its ports and files stay open.

    Raises:
        psutil.Error: there is no such process, or it can't be looked at.
    """
    if process.status() != psutil.STATUS_ZOMBIE:
        return False
    try:
        return process.num_threads() <= 1
    except psutil.ZombieProcess:  # macOS tells no threads of one
        return True
