"""Starts reducers by fork on Linux, as tests/cradle.py has a daemon start them: to load Python, MLX
and elasticd takes each longer than most of these tests.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tests.cradle import READ_BY_LIBRARIES, Cradles
from tests.nursery import READ_AT_START, Forked

StartedReducer: TypeAlias = subprocess.Popen[bytes] | Forked


def started(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *, forks: bool
) -> StartedReducer:
    """A child in a session of its own, which begins in ``folder``.

    Args:
        forks: no Python of its own is started for it if that can be done without.
    """
    if not forks or sys.platform != "linux":
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
    child = _cradles().Popen(
        command, folder, environment, stdout=2, stdin=subprocess.DEVNULL, start_new_session=True
    )
    if isinstance(child, subprocess.Popen):
        return child
    return Forked(functools.partial(_ended, child.pid), child.pid)


@functools.cache
def _cradles() -> Cradles:
    return Cradles(READ_AT_START + READ_BY_LIBRARIES)


def _ended(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None
