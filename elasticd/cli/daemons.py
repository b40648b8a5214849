"""Processes of a local cluster: a folder's JSON file names one by its pid, when it was born, and
the folder itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import psutil

from elasticd.shell.storage.durable import open_private, write_whole
from elasticd.supervision.naming import named

# -P: nothing in the working folder, which is the node's home, shall be imported.
DAEMON = (sys.executable, "-P", "-m", "elasticd.shell.daemon")
LOG_FILE = "daemon.log"


class StartedDaemon(Protocol):
    """What :class:`subprocess.Popen` knows of a daemon that was started."""

    pid: int
    returncode: Any
    """None while it runs, as far as is known."""

    def poll(self) -> int | None:
        """Look; its exit code once it has ended."""


class StartDaemon(Protocol):
    """How the daemon of a node is started: :func:`start_daemon`."""

    def __call__(self, home: Path, program: Sequence[str], /) -> StartedDaemon: ...


def name(record: Path, process: psutil.Process) -> None:
    """Have :func:`find` find ``process`` in the file."""
    write_whole(record, json.dumps(named(process, record.parent)).encode())


def start_daemon(home: Path, program: Sequence[str] = DAEMON) -> subprocess.Popen[bytes]:
    """Start the daemon of a node, detached."""
    return start([*program, "run", "--home", str(home)], home, home / LOG_FILE)


def start(
    command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own that prints into ``log``; it has our environment,
    unless another is given."""
    with open_private(log, "ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )


def let_live(process: StartedDaemon) -> None:
    """It is to outlive us: Popen shall not wait for it, nor complain."""
    process.returncode = 0
