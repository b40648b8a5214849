"""Something small that is tried in a process of its own, which has to come to an end."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.shell.clock import monotonic_seconds

_MOST_BYTES, _MOST_ERROR_BYTES, _READ_BYTES = 1 << 20, 1 << 16, 1 << 16
_LOOK_SECONDS = 0.5
_CLOSED_SECONDS = 0.01
_LAST_READS = 64
"""More than a pipe holds."""


def tried(
    command: Sequence[str],
    variables: Mapping[str, str],
    folder: Path,
    late: float,
    stop: threading.Event | None = None,
) -> bytes:
    """The first MiB that the command prints. It has ``late`` seconds; to be called in a thread.
    ``stop`` ends it, within half a second.

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
        raise OperationError(f"{command[0]} hangs: it has not ended in {late:g} s") from None
    finally:
        # Also what it has started.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:
            pass
    if process.returncode:
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise OperationError(f"{command[0]} {_ended(process.returncode)}{last and ': '}{last}")
    return out


def _said(
    process: subprocess.Popen[bytes], late: float, stop: threading.Event
) -> tuple[bytes, bytes]:
    """The first that it prints, and the last of its errors; it has ended then. What it has started
    may still have the pipes, and is not waited for."""
    assert process.stdout is not None and process.stderr is not None
    said = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = said.values()
    still_open = list(said)

    def read(seconds: float) -> bool:
        """Whether there was something within so long."""
        found = readable(still_open, seconds)
        for fd in found:
            if not (data := os.read(fd, _READ_BYTES)):
                still_open.remove(fd)
            said[fd] += data
        del out[_MOST_BYTES:], err[:-_MOST_ERROR_BYTES]
        return bool(found)

    until = monotonic_seconds() + late
    while process.poll() is None:
        if stop.is_set():
            raise OperationError("it was stopped")
        if (left := until - monotonic_seconds()) <= 0:
            raise subprocess.TimeoutExpired(process.args, late)
        read(min(left, _LOOK_SECONDS))
    for _ in range(_LAST_READS):
        if not read(0.0):
            break
    return bytes(out), bytes(err)


def readable(fds: Sequence[int], seconds: float) -> Sequence[int]:
    """Waits for so long at most. select() would take no descriptor from 1024 on, and a daemon may
    have as many."""
    if not fds:  # all are closed: it is about to end
        time.sleep(min(seconds, _CLOSED_SECONDS))
        return ()
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(seconds)]


def _ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
