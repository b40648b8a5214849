from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from elasticd.ipc.listening import is_listening


def test_a_bound_port_listens_only_when_it_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert not is_listening(os.getpid(), port)
        listener.listen()
        assert is_listening(os.getpid(), port)
        assert not is_listening(os.getpid(), port ^ 1)


@pytest.mark.process
def test_a_process_that_has_gone_does_not_listen() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.001)
    assert not is_listening(process.pid, 80)
    process.wait()
    assert not is_listening(process.pid, 80)
