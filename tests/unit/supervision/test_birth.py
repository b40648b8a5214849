"""Which process it is, and whether it has ended."""

from __future__ import annotations

import socket
import subprocess
import sys

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
