from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from elasticd.ipc.listening import port_use


def test_a_bound_port_listens_only_when_it_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert port_use(os.getpid(), port) == "none"
        listener.listen()
        assert port_use(os.getpid(), port) == "listens"
        assert port_use(os.getpid(), port ^ 1) == "none"


@pytest.mark.parametrize("how", ["stays", "leaves"])
def test_a_port_is_taken_when_somebody_was_let_in_and_nobody_else_is_waited_for(how: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as other:
            assert port_use(os.getpid(), port) == "listens", "nobody has been let in yet"
            accepted, _ = listener.accept()
            with accepted:
                assert port_use(os.getpid(), port) == "listens"
                listener.close()
                if how == "leaves":
                    other.close()
                    assert accepted.recv(1) == b""
                assert port_use(os.getpid(), port) == "taken"
    assert port_use(os.getpid(), port) == "none"


@pytest.mark.process
def test_a_process_that_has_gone_does_not_listen() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.001)
    assert port_use(process.pid, 80) == "none"
    process.wait()
    assert port_use(process.pid, 80) == "none"
