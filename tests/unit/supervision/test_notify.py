from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from elasticd.supervision.notify import Notifier


def manager(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.settimeout(5)
    listener.bind(address)
    return listener


def test_the_manager_hears_everything(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with manager(address) as listener:
        notifier = Notifier.from_environment({"NOTIFY_SOCKET": address})
        assert notifier.ready("two\nlines")
        assert notifier.watchdog()
        assert notifier.stopping()
        received = [listener.recv(1000) for _ in range(3)]
    assert received == [b"READY=1\nSTATUS=two lines", b"WATCHDOG=1", b"STOPPING=1"]


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
def test_abstract_addresses() -> None:
    name = f"elasticd-test-{os.getpid()}"
    with manager("\0" + name) as listener:
        assert Notifier.from_environment({"NOTIFY_SOCKET": "@" + name}).ready()
        assert listener.recv(1000) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/no/such/socket", "x" * 500, "a\0b"])
def test_nobody_to_tell_is_no_error(address: str) -> None:
    assert not Notifier(address).ready()


def test_the_watchdog_is_for_one_pid() -> None:
    def seconds(**environment: str) -> float:
        return Notifier.from_environment(environment).watchdog_seconds

    assert seconds(WATCHDOG_USEC="30000000") == 30.0
    assert seconds(WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid())) == 30.0
    assert seconds(WATCHDOG_USEC="30000000", WATCHDOG_PID="1") == 0.0
    assert seconds(WATCHDOG_USEC="soon") == 0.0
    assert seconds() == 0.0
