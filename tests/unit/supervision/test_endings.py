"""Processes that end before anybody asks for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from elasticd.supervision.endings import ending_status
from elasticd.supervision.exits import wait_without_reaping

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="macOS tells it to nobody but the parent"),
]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield made
    made.kill()
    made.communicate()


def test_one_that_runs_is_not_ending(process: subprocess.Popen[bytes]) -> None:
    assert ending_status(process.pid) is None


def test_one_that_was_killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert ending_status(process.pid) == -signal.SIGKILL, "whether it has the processor or not"
    wait_without_reaping(process.pid)
    assert ending_status(process.pid) == -signal.SIGKILL


def test_one_that_crashed(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSEGV)
    wait_without_reaping(process.pid)
    assert ending_status(process.pid) == -signal.SIGSEGV


def test_one_that_came_to_its_own_end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(b"\n")
    other = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    wait_without_reaping(other.pid)
    assert ending_status(other.pid) == 3
    other.wait()


def test_one_that_is_gone(process: subprocess.Popen[bytes]) -> None:
    process.communicate(b"\n")
    assert ending_status(process.pid) is None
