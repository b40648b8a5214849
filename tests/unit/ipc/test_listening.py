from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from typing import Any, cast

import psutil
import pytest

from elasticd.ipc.listening import (
    has_let_in,
    has_tcp_sockets,
    is_listening,
    listeners,
    listens_here,
    tcp_sockets,
)

SYSTEMS = pytest.mark.parametrize("system", ["linux", "darwin"])
"""psutil, by which macOS is asked, knows Linux, too."""


@SYSTEMS
def test_a_bound_port_listens_only_when_it_listens(system: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert not is_listening(os.getpid(), port, system) and not has_let_in(
            os.getpid(), port, system
        )
        listener.listen()
        assert is_listening(os.getpid(), port, system)
        assert not is_listening(os.getpid(), port ^ 1, system)


@SYSTEMS
@pytest.mark.parametrize("how", ["stays", "leaves"])
def test_who_has_connected_is_let_in_once_that_was_accepted(how: str, system: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as other:
            assert not has_let_in(os.getpid(), port, system)
            accepted, _ = listener.accept()
            with accepted:
                listener.close()
                if how == "leaves":
                    other.close()
                    assert accepted.recv(1) == b""
                assert has_let_in(os.getpid(), port, system) and not is_listening(
                    os.getpid(), port, system
                )
                assert not has_let_in(os.getpid(), port ^ 1, system)
    assert not has_let_in(os.getpid(), port, system)


@SYSTEMS
@pytest.mark.process
def test_a_socket_whose_other_end_has_gone_is_still_one(system: str) -> None:
    """A process of its own, with sockets of other kinds, that lets somebody in who hangs up. Of
    what is left then only Linux's table of Unix sockets tells here; a Mac lists descriptors."""
    script = (
        "import socket, sys; kept = socket.socketpair(); print(flush=True); input()\n"
        "s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
        "a, _ = s.accept(); s.close(); input()\n"
        "try: a.recv(1)\n"
        "except ConnectionResetError: print('reset', flush=True)\n"
        "input()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        assert not has_tcp_sockets(process.pid, system)
        process.stdin.write("\n")
        port = int(process.stdout.readline())
        assert has_tcp_sockets(process.pid, system) and is_listening(process.pid, port, system)
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
        process.stdin.write("\n")
        assert process.stdout.readline() == "reset\n"
        assert system != sys.platform or has_tcp_sockets(process.pid, system)
        assert not has_let_in(process.pid, port, system)
        process.stdin.write("\n")


@SYSTEMS
@pytest.mark.process
def test_a_process_that_has_gone_does_not_listen(system: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.001)
    assert not is_listening(process.pid, 80, system) and not has_let_in(process.pid, 80, system)
    assert not has_tcp_sockets(process.pid, system)
    process.wait()
    assert not is_listening(process.pid, 80, system) and not has_let_in(process.pid, 80, system)
    assert not has_tcp_sockets(process.pid, system)


@pytest.mark.parametrize(
    "error",
    [
        psutil.AccessDenied(70),
        OSError(102, "Operation not supported on socket"),
        RuntimeError("proc_pidinfo(PROC_PIDLISTFDS) 2/2 syscall failed"),
    ],
)
def test_one_of_which_a_mac_tells_nothing_just_now_has_no_sockets(error: Exception) -> None:
    class Mute:
        def net_connections(self, kind: str) -> list[Any]:
            raise error

    assert tcp_sockets(70, process=lambda pid: cast(psutil.Process, Mute())) == []
    assert hasattr(psutil.Process, "net_connections"), "it has that name since psutil 6"


def test_a_port_is_known_as_our_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert listens_here(port)
    assert not listens_here(port)


def test_one_of_which_a_mac_tells_nothing_hides_no_other() -> None:
    class Mute:
        def uids(self) -> Any:
            raise RuntimeError("proc_pidinfo(PROC_PIDLISTFDS) 2/2 syscall failed")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        mute = cast(psutil.Process, Mute())
        assert listens_here(port, lambda: [mute, psutil.Process()])
        assert not listens_here(port, lambda: [mute])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/net")
@pytest.mark.parametrize("family, host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_linux_says_whose_a_listener_is(family: socket.AddressFamily, host: str) -> None:
    try:
        listening = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("there is no such network here")
    with listening:
        port = listening.getsockname()[1]
        assert listeners(port) == {os.geteuid()}
    assert listeners(port) == set()
    assert listeners(port, "darwin") is None
