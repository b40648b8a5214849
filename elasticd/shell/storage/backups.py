"""What of a home Time Machine is to leave out.

Checkpoints and caches change all the time and are large; copies are on other nodes. ``tmutil
addexclusion PATH`` (tmutil(8)) marks a folder itself, so it needs no root and stays when that is
moved. Linux has nothing of the kind.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from elasticd.errors import OperationError
from elasticd.supervision.service import run_command

LEFT_OUT = ("cache", "checkpoints", "clones")
_TMUTIL = ("/usr/bin/tmutil", "addexclusion")
_SECONDS = 10.0

Run = Callable[[Sequence[str]], str]

log = structlog.get_logger(__name__)


def _run(command: Sequence[str]) -> str:
    """Why it failed, or nothing."""
    try:
        done = run_command(command, _SECONDS)
    except (OperationError, OSError) as error:
        return str(error)
    return done.text or f"status {done.status}" if done.status else ""


def leave_out(home: Path, system: str = sys.platform, run: Run = _run) -> None:
    """Have these folders left out. Blocks for a moment; what fails is logged, and harms nothing."""
    if system != "darwin":
        return
    folders = [home / name for name in LEFT_OUT]
    try:
        for folder in folders:
            folder.mkdir(exist_ok=True)
    except OSError as error:  # the daemon says what is in their place when it needs them
        log.warning("not left out of backups", home=str(home), reason=str(error))
        return
    if why := run([*_TMUTIL, *map(str, folders)]):
        log.warning("not left out of backups", home=str(home), reason=why)
