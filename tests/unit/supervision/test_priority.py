from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elasticd.supervision.priority import now_or_soon

pytestmark = pytest.mark.process

AUTOGROUP = Path("/proc/self/autogroup")
in_linux = pytest.mark.skipif(not AUTOGROUP.exists(), reason="needs sched_autogroup (Linux)")
SAYS = """
import os, sys, threading
from pathlib import Path
from elasticd.supervision.priority import give_way, thread_gives_way

before = os.nice(0)
give_way(5)
print(os.nice(0) - before)
thread = threading.Thread(target=lambda: (thread_gives_way(5), print(os.nice(0) - before)))
thread.start()
thread.join()
print(os.nice(0) - before, flush=True)
sys.stdin.read()
"""
"""And lives on until its input ends."""


def says(*, session: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=session,
    )  # fmt: skip


def nice_of_session(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no nice value")
def test_a_process_gives_way_and_a_thread_of_it_once_more() -> None:
    said, _ = says(session=True).communicate(timeout=60)
    assert said.split() == ["5", "10", "5"]


@in_linux
def test_so_does_the_session_that_it_leads_and_no_other() -> None:
    own = AUTOGROUP.read_text()
    alone, inside = says(session=True), says(session=False)
    for process in alone, inside:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
    found = nice_of_session(alone)
    for process in alone, inside:
        process.communicate(timeout=60)
    assert found == 5  # a new session begins with 0
    assert AUTOGROUP.read_text() == own


def test_what_the_system_does_not_take_at_once_is_tried_again() -> None:
    """It takes one change in a tenth of a second from all who are not root."""
    refused, done = iter([True, True, False]), threading.Event()

    def change() -> None:
        if next(refused):
            raise BlockingIOError
        done.set()

    now_or_soon(change)
    assert done.wait(60)
