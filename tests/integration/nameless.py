"""Nameless shared memory (memfd) that processes hold, as Linux tells of it in /proc.

macOS does not tell, so nothing is found there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

_PREFIX = "/memfd:elasticd"
_POLL_SECONDS = 0.05


def held_by(pid: int) -> list[str]:
    """The memory that a process has a descriptor of or has mapped, one text each. Empty if it has
    ended."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for link in sorted(Path(f"/proc/{pid}/fd").iterdir()):
            with contextlib.suppress(OSError):  # closed meanwhile
                if (target := str(link.readlink())).startswith(_PREFIX):
                    found.append(f"descriptor {link.name} of {target}")
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if _PREFIX in line:
                found.append(f"mapping of {line[line.index(_PREFIX) :]}")
    return found


def never_given_back(pids: Sequence[int], seconds: float) -> list[str]:
    """What the processes still hold after so long: a job that has just ended gives back soon."""
    deadline = time.monotonic() + seconds
    while left := [f"process {pid}: {what}" for pid in pids for what in held_by(pid)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return left
