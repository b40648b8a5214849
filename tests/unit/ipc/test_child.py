from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.processes import NEWEST
from elasticd.errors import ProtocolError
from elasticd.ipc.child import CHILD_VARIABLE, ChildSettings, DaemonLink
from elasticd.ipc.frames import FrameSocket

CHILD = {"socket": "/x/s", "nonce": "ab", "role": "trainer", "grace_seconds": 30, "job": "j-1"}


def test_settings_come_from_the_environment() -> None:
    settings = ChildSettings.from_environment({CHILD_VARIABLE: json.dumps(CHILD)})
    assert settings == ChildSettings("/x/s", "ab", "trainer", 30.0, {"job": "j-1"})


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "no json",
        "[]",
        "3",
        json.dumps({**CHILD, "grace_seconds": "soon"}),
        json.dumps({**CHILD, "role": "cook"}),
        "{}",
    ],
)
def test_another_environment_is_refused(text: str | None) -> None:
    with pytest.raises(ProtocolError, match=CHILD_VARIABLE):
        ChildSettings.from_environment({} if text is None else {CHILD_VARIABLE: text})


class Daemon:
    """The daemon's end of one child."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "children.sock"
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._listener.settimeout(20)

    def accept(self) -> tuple[FrameSocket, dict[str, Any]]:
        connection = FrameSocket(self._listener.accept()[0])
        self._listener.close()
        received = connection.receive()
        assert received is not None
        return connection, received[0]


def read(connection: FrameSocket) -> dict[str, Any]:
    received = connection.receive()
    assert received is not None
    return received[0]


def test_a_child_says_hello_and_outlives_its_daemon(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    settings = ChildSettings(str(daemon.path), "ab", "trainer", 30.0, {})
    seen: list[Any] = []
    hello = {
        "t": "hello", "nonce": "ab", "pid": os.getpid(), "role": "trainer", "version": NEWEST,
    }  # fmt: skip
    link = DaemonLink.connect(settings)
    try:
        link.introduce = lambda resume: resume([{"t": "here"}])
        thread = threading.Thread(target=lambda: seen.extend(link.messages()))
        thread.start()
        connection, said = daemon.accept()
        assert said == hello
        assert 20 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
        reader, writer = os.pipe()
        signal.setitimer(signal.ITIMER_REAL, 20)  # so that more is left only if it is armed again
        connection.send({"t": "alive"})
        connection.send({"t": "world"}, [reader])
        connection._socket.sendall(b"\0\0")  # it dies in the middle of a frame
        connection.close()

        successor = Daemon(tmp_path)
        connection, said = successor.accept()
        assert said == hello
        assert read(connection) == {"t": "here"}
        assert 20 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
        assert link.send({"t": "progress"}) is True
        assert read(connection) == {"t": "progress"}
        link.say_goodbye(3)
        assert read(connection) == {"t": "bye", "status": 3}
        link.close()
        thread.join(20)
        assert not thread.is_alive()
        [(message, fds)] = seen
        assert message == {"t": "world", "fds": 1}
        assert link.send({"t": "progress"}) is False
        for fd in (reader, writer, *fds):
            os.close(fd)
        connection.close()
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    finally:
        link.close()  # or its dead-man ends this process later


def test_a_link_that_closes_while_a_frame_arrives_leaves_no_dead_man(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(tmp_path)
    link = DaemonLink.connect(ChildSettings(str(daemon.path), "ab", "trainer", 30.0, {}))
    connection, _ = daemon.accept()
    armed: list[float] = []
    closes = threading.Thread(target=link.close)

    def arm(seconds: float) -> None:
        if seconds:
            closes.start()
            closes.join(0.2)  # in vain: it has to wait
        armed.append(seconds)

    monkeypatch.setattr(link._dead_man, "arm", arm)
    try:
        connection.send({"t": "alive"})
        assert list(link.messages()) == []
        closes.join(20)
        assert armed == [30.0, 0]
    finally:
        monkeypatch.undo()
        link.close()
        connection.close()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_connecting_aside_leaves_the_working_folder_alone(tmp_path: Path, platform: str) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    before = os.getcwd()
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(folder):
            listener.bind("children.sock")
        listener.listen()
        connection = FrameSocket.connect_aside(folder / "children.sock", platform)
        other, _ = listener.accept()
        connection.send({"t": "hello"})
        assert read(FrameSocket(other)) == {"t": "hello"}
        other.close()
        connection.close()
    assert os.getcwd() == before


HUNG = """
import re
from elasticd.ipc.child import DaemonLink
link = DaemonLink.connect()
re.match(r"(a+)+$", "a" * 64 + "b")  # holds the interpreter's lock for longer than anyone waits
"""

STOPPED = """
import os, signal
from elasticd.ipc.child import DaemonLink
link = DaemonLink.connect()
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="has no timers that send SIGKILL")
def test_the_dead_man_ends_a_child_that_is_stopped(tmp_path: Path) -> None:
    """SIGALRM waits until it goes on, which may be never."""
    daemon = Daemon(tmp_path)
    child = {**CHILD, "socket": str(daemon.path), "grace_seconds": 0.3}
    environment = {**os.environ, CHILD_VARIABLE: json.dumps(child)}
    process = subprocess.Popen([sys.executable, "-c", STOPPED], env=environment)
    try:
        connection, _ = daemon.accept()
        assert process.wait(20) == -signal.SIGKILL
        connection.close()
    finally:
        process.kill()
        process.wait()


@pytest.mark.process
def test_the_dead_man_ends_a_child_that_hangs_with_the_lock_held(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    child = {**CHILD, "socket": str(daemon.path), "grace_seconds": 0.3}
    environment = {**os.environ, CHILD_VARIABLE: json.dumps(child)}
    process = subprocess.Popen([sys.executable, "-c", HUNG], env=environment)
    try:
        connection, hello = daemon.accept()
        assert hello["pid"] == process.pid
        assert process.wait(20) == -signal.SIGALRM
        connection.close()
    finally:
        process.kill()
        process.wait()
