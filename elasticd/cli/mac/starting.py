"""A probe of a process that has used the network: whether its children live to begin their program.

Daemons do all of it: they watch folders, look names up, connect, and start trainers.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from watchdog.events import FileSystemEventHandler

from elasticd.preflight.finding import ProbeFinding, failed, passed
from elasticd.shell.network.ownaddresses import ALONE, hosts
from elasticd.shell.storage.watching import FolderWatch

TIMES = 50
CURE = (
    "Name peers in elasticd.toml by numeric addresses, not by names; take away network extensions"
    " (VPNs, filters) to see whether it goes with them; and send the bundle"
)
_PROGRAM = ("/usr/bin/true",)
_SECONDS = 10.0
_NAME = "example.com"
"""Of no local network: libnetwork is asked for the way there, whether or not it answers."""


def look_up() -> None:
    """As a daemon does with a peer's name."""
    socket.getaddrinfo(_NAME, 443, type=socket.SOCK_STREAM)


def starts(
    folder: Path,
    look: Callable[[], None] = look_up,
    program: Sequence[str] = _PROGRAM,
    times: int = TIMES,
    own: Callable[[], Sequence[str]] = hosts,
) -> ProbeFinding:
    """Whether a child of a process that has used the network crashes before its program begins."""
    statuses = asyncio.run(_played(folder, look, program, times, own))
    ends = [signal.Signals(-each).name for each in statuses if each < 0]
    if ends:
        how = " and ".join(sorted(set(ends)))
        value = f"{len(ends)} of {times} children, started after a look-up, ended by {how}"
        return failed(value, CURE)
    return passed(f"{times} children began after a look-up and a connection")


async def _played(
    folder: Path,
    look: Callable[[], None],
    program: Sequence[str],
    times: int,
    own: Callable[[], Sequence[str]],
) -> list[int]:
    watch = FolderWatch()
    await watch.start(folder, FileSystemEventHandler(), recursive=False)
    try:
        with contextlib.suppress(OSError):  # no network: it was asked all the same
            look()
        host = next(iter(own()), ALONE)
        with contextlib.suppress(OSError), socket.create_server((host, 0)) as server:
            socket.create_connection(server.getsockname()[:2], _SECONDS).close()
        return [_status(program) for _ in range(times)]
    finally:
        await watch.close()


def _status(program: Sequence[str]) -> int:
    process = subprocess.Popen(program, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(_SECONDS)
    finally:
        process.kill()
        process.wait()
