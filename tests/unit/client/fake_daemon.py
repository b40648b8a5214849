"""A daemon that speaks docs/protocols.md §3 and runs nothing.

In a test's own process: ``FakeDaemon(home)`` as a context. As a program of its own, in the place of
``elasticd``: ``fake_daemon.py run --home DIR``; then it writes the files that a daemon writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from elasticd.errors import DamageError
from elasticd.ipc.frames import FrameSocket
from elasticd.settings import config
from elasticd.supervision.naming import named

PROGRAM = Path(__file__)

Message = Mapping[str, Any]
Answer = Callable[[dict[str, Any]], Iterable[Message]]


class FakeDaemon:
    """Answers each request of ``HOME/control.sock`` from a table of canned answers.

    ``answers`` maps the name of a request to what is sent back: one message, several of them, or a
    function of the request. After the frames of several the connection closes.
    """

    def __init__(self, home: Path, answers: Mapping[str, Any]) -> None:
        self.answers = dict(answers)
        self.requests: list[dict[str, Any]] = []
        self.archives: list[bytes] = []
        home.mkdir(parents=True, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX)
        with contextlib.chdir(home):
            Path("control.sock").unlink(missing_ok=True)
            self._socket.bind("control.sock")
        self._path = home / "control.sock"
        self._socket.listen(16)
        self._threads = [threading.Thread(target=self._accept)]

    def pose(self) -> None:
        """As root: be a daemon of another account from now on."""
        from tests.nobody import as_nobody  # as a program it finds no tests

        with as_nobody():
            self._socket.listen(16)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameSocket(connection)
        with contextlib.suppress(OSError), contextlib.closing(frames):
            received = frames.receive()
            if received is None:
                return
            request = received[0]
            if request["do"] == "name_job" and "name_job" not in self.answers:
                frames.send({"id": f"{request['name']}-1-k3f9"})
                return
            if request["do"] == "losses" and "losses" not in self.answers:
                frames.send({"losses": [], "ranks": []})
                return
            self.requests.append(request)
            if request["do"] == "submit" and "submit" in self.answers:
                self._receive_archive(frames, request["archive_bytes"])
            answer = self.answers[request["do"]]
            answer = answer(request) if callable(answer) else answer
            for message in [answer] if isinstance(answer, Mapping) else answer:
                frames.send(message)
                if "path" in message:
                    frames.receive()  # the client has read that file
                if message.get("send"):
                    self._receive_archive(frames, request["script"]["archive_bytes"])

    def _receive_archive(self, frames: FrameSocket, size: int) -> None:
        data = b""
        while len(data) < size:
            received = frames.receive()
            assert received is not None
            data += received[0]["data"]
        self.archives.append(data)


def main(home: Path) -> None:
    """Be the daemon of ``home``: sees all its peers at once, ends when asked to."""
    settings = config.load(home)
    if settings.failure_domain == "fails":
        print("the fake daemon fails, as told")
        sys.exit(7)
    if settings.failure_domain == "damaged":
        print("journal: the disk lost acknowledged data")
        sys.exit(DamageError.exit_code)
    record = {**named(psutil.Process(), home), "address": settings.listen}
    (home / "daemon.json").write_text(json.dumps(record))
    nodes = [f for f in home.parent.glob("node-*") if config.load(f).failure_domain != "damaged"]
    members = sorted(folder.name for folder in nodes)
    status = {
        "cluster": settings.cluster,
        "view": {"epoch": 1, "leader": members[0], "members": members},
        "nodes": [],
        "jobs": [],
        "descriptors": sorted(os.listdir("/dev/fd")),
    }
    ended = threading.Event()

    def shutdown(_: dict[str, Any]) -> Message:
        ended.set()
        return {}

    stubborn = settings.failure_domain == "stubborn"
    with FakeDaemon(home, {"status": status, "shutdown": {} if stubborn else shutdown}):
        ended.wait()


if __name__ == "__main__":
    main(Path(sys.argv[sys.argv.index("--home") + 1]))
