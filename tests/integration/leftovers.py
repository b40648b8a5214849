"""What a cluster may leave behind: processes and ports."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import psutil

from elasticd.settings import config
from elasticd.supervision.birth import has_ended


def processes_of(home: Path) -> list[tuple[int, str]]:
    """Every process whose command line or environment names ``home``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or has_ended(process):
                continue
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(home) in word for word in words):
                found.append((process.pid, " ".join(process.cmdline())[:200]))
    return found


def accepts(address: str) -> bool:
    """Whether something listens there."""
    with contextlib.closing(socket.socket()) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(config.split_address(address)) == 0
