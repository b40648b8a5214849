"""A real daemon, and the socket on which a service manager listens to it: sd_notify(3)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from tests.ports import free_ports

pytestmark = pytest.mark.process

PATIENCE_SECONDS = 120
WATCHDOG_USEC = 500_000


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(mkdtemp(prefix="elasticd-"))  # a socket's path is short
    (folder / "elasticd.toml").write_text(
        f'node_id = "one"\nlisten = "127.0.0.1:{free_ports(1)[0]}"\n'
    )
    yield folder
    shutil.rmtree(folder)


def test_a_daemon_says_that_it_is_ready_that_it_lives_and_that_it_stops(home: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE_SECONDS)
        manager.bind(str(home / "notify"))
        told = {"NOTIFY_SOCKET": str(home / "notify"), "WATCHDOG_USEC": str(WATCHDOG_USEC)}

        def heard() -> str:
            return manager.recv(4096).decode().partition("\n")[0]

        def until(state: str) -> list[str]:
            found = [heard()]
            while found[-1] != state:
                found.append(heard())
            return found

        with (home / "log").open("wb") as log:
            daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "elasticd.shell.daemon", "run", "--home", str(home)],
                env={**os.environ, **told}, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            # A start that takes its time is not to be ended by the watchdog.
            assert set(until("READY=1")[:-1]) <= {"WATCHDOG=1"}
            status = Client(home).request(ShowStatus())
            assert [node["pid"] for node in status["nodes"]] == [daemon.pid], "it was not ready"
            assert [heard(), heard(), heard()] == ["WATCHDOG=1"] * 3, "it lives, again and again"
            daemon.send_signal(signal.SIGSTOP)
            os.waitpid(daemon.pid, os.WUNTRACED)
            manager.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    heard()
            manager.settimeout(3 * WATCHDOG_USEC / 1e6)
            with pytest.raises(TimeoutError):  # systemd ends such a one after WatchdogSec=
                heard()
            manager.settimeout(PATIENCE_SECONDS)
            daemon.send_signal(signal.SIGCONT)
            until("WATCHDOG=1")
            daemon.terminate()
            until("STOPPING=1")
            assert daemon.wait(PATIENCE_SECONDS) == 0
        finally:
            daemon.kill()
            daemon.wait()
