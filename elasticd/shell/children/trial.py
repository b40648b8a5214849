"""Something small that is tried in a process of its own, which has to come to an end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.shell.clock import monotonic_seconds

_MOST_BYTES = 1 << 20
_LOOK_SECONDS = 0.5


def tried(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    late: float,
    stop: threading.Event | None = None,
) -> bytes:
    """What the command prints. It has ``late`` seconds; to be called in a thread. ``stop`` ends it,
    within half a second.

    Raises:
        OperationError: it can't be started, fails, hangs or was stopped: which, with the last line
            of its errors.
    """
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise OperationError(f"{command[0]} can't be started: {why}") from None
    try:
        out, err = _said(process, late, stop or threading.Event())
    except subprocess.TimeoutExpired:
        raise OperationError(f"{command[0]} hangs: it said nothing for {late:g} s") from None
    finally:
        # Also what it has started.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass
    if process.returncode:
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise OperationError(f"{command[0]} {_ended(process.returncode)}{last and ': '}{last}")
    return out[:_MOST_BYTES]


def _said(
    process: subprocess.Popen[bytes], late: float, stop: threading.Event
) -> tuple[bytes, bytes]:
    until = monotonic_seconds() + late
    while True:
        left = until - monotonic_seconds()
        try:
            return process.communicate(timeout=max(0.0, min(left, _LOOK_SECONDS)))
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise OperationError("it was stopped") from None
            if left <= _LOOK_SECONDS:
                raise


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
