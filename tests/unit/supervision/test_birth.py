"""Which process it is, and whether it has ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import psutil
import pytest

from elasticd.supervision.birth import birth, has_ended, is_same

ONE_LEFT = """
import ctypes, socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
lib = ctypes.CDLL(None)
pause = ctypes.cast(lib.pause, ctypes.c_void_p)
lib.pthread_create(ctypes.byref(ctypes.c_ulong()), None, pause, None)
lib.pthread_exit(None)
"""
"""Listens; its first thread ends, another stays, as one does that waits for a disk."""


def wait_zombie(process: psutil.Process) -> None:
    while process.status() != psutil.STATUS_ZOMBIE:
        pass


@dataclass
class DarwinProcess:
    """psutil's of macOS (7.1 and later): what the kernel noted at its start stays, and what is
    shown of it moves with the wall clock."""

    pid: int
    noted: float | None
    clock_set_by: float = 0.0

    @property
    def _ident(self) -> tuple[int, float | None]:
        return self.pid, self.noted

    def create_time(self) -> float:
        if self.noted is None:
            raise psutil.ZombieProcess(self.pid)
        return self.noted + self.clock_set_by


def on_a_mac(*running: DarwinProcess) -> Callable[[int], psutil.Process]:
    """How processes are looked at there."""

    def look(pid: int) -> psutil.Process:
        found = [each for each in running if each.pid == pid]
        if not found:
            raise psutil.NoSuchProcess(pid)
        return cast(psutil.Process, found[0])

    return look


def test_on_a_mac_it_stays_when_the_clock_is_set() -> None:
    process = DarwinProcess(70, 1_800_000_000.25)
    born = birth(70, "darwin", on_a_mac(process))
    process.clock_set_by = 3600.0
    assert birth(70, "darwin", on_a_mac(process)) == born
    with pytest.raises(psutil.Error):  # as psutil keeps one that is a zombie already
        birth(70, "darwin", on_a_mac(DarwinProcess(70, None)))
    again = DarwinProcess(70, 1_800_000_000.250001)
    assert birth(70, "darwin", on_a_mac(again)) != born, "its pid was given out again"
    with pytest.raises(psutil.NoSuchProcess):
        birth(70, "darwin", on_a_mac())


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_two_processes_were_born_at_two_times(platform: str) -> None:
    if platform == "linux" and sys.platform != "linux":
        pytest.skip("Linux's side reads /proc")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert birth(child.pid, platform) == birth(child.pid, platform)
        assert birth(child.pid, platform) != birth(os.getpid(), platform)
        child.kill()
    with pytest.raises(psutil.NoSuchProcess):
        birth(child.pid, platform)


def test_what_nobody_has_asked_after_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        born = birth(child.pid)
        assert not has_ended(process) and is_same(child.pid, born, 0.0)
        child.kill()
        wait_zombie(process)
        assert has_ended(process)
    with pytest.raises(psutil.NoSuchProcess):
        has_ended(process)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a zombie has no threads")
def test_a_thread_that_is_left_keeps_its_ports_open() -> None:
    with subprocess.Popen([sys.executable, "-c", ONE_LEFT], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        process, port = psutil.Process(child.pid), int(child.stdout.readline())
        wait_zombie(process)
        socket.create_connection(("127.0.0.1", port)).close()
        assert not has_ended(process)
        child.kill()
    assert child.returncode == -9
