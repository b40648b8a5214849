"""The client's side of docs/protocols.md §3: asks a daemon over HOME/control.sock."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elasticd.archive import Archive
from elasticd.client.homes import sockets
from elasticd.errors import NoDaemonError, OperationError, ProtocolError, UsageError
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.job import JobSpec

ANSWER_SECONDS = 10.0
PROBE_SECONDS = 2.0
"""How long one of several daemons may take to prove that it answers."""
ARCHIVE_FRAME_BYTES = 1 << 20

_READ_BYTES = 256 * 1024
# sun_path holds 104 bytes on macOS and 108 on Linux, with the closing zero.
_SHORT_PATH_BYTES = 100


class Connection:
    """One connection to a daemon's control socket."""

    def __init__(self, path: Path) -> None:
        """Connect.

        Raises:
            NoDaemonError: nobody listens at ``path``.
        """
        self._path = path
        self._decoder = Decoder()
        self._frames: deque[dict[str, Any]] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(PROBE_SECONDS)
        try:
            if len(os.fsencode(path)) <= _SHORT_PATH_BYTES:
                self._socket.connect(os.fspath(path))
            else:
                with contextlib.chdir(path.parent):
                    self._socket.connect(path.name)
        except OSError as error:
            self._socket.close()
            raise NoDaemonError(f"no daemon answers at {path.parent} ({error})") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one frame.

        Raises:
            NoDaemonError: the daemon hung up or doesn't read.
        """
        self._socket.settimeout(ANSWER_SECONDS)
        try:
            self._socket.sendall(encode(message))
        except OSError as error:
            raise self._gone(str(error)) from None

    def receive(self, seconds: float | None) -> dict[str, Any] | None:
        """The next frame, or None if it hasn't come within ``seconds`` (None: wait for ever).

        Raises:
            NoDaemonError: the daemon hung up.
            OperationError, UsageError: the frame is the daemon's refusal.
            ProtocolError: the frame is none.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._frames:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                return None
            except OSError as error:
                raise self._gone(str(error)) from None
            if not data:
                raise self._gone("it hung up")
            self._frames.extend(self._decoder.feed(data))
        return _checked(self._frames.popleft())

    def answer(self, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """The next frame.

        Raises:
            NoDaemonError: none came within ``seconds``; else as :meth:`receive`.
        """
        frame = self.receive(seconds)
        if frame is None:
            raise self._gone(f"nothing came for {seconds:g} s")
        return frame

    def _gone(self, why: str) -> NoDaemonError:
        return NoDaemonError(f"the daemon at {self._path.parent} doesn't answer ({why})")


class Client:
    """Talks to the daemon of ``home``, or to the first of its nodes that answers."""

    def __init__(self, home: Path, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.home = home
        self._answer_seconds = answer_seconds

    def request(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Ask and return the answer.

        Raises:
            NoDaemonError: no daemon answers in time.
            OperationError, UsageError: the daemon refuses.
            ProtocolError: what answers is no daemon.
        """
        with self.open(message) as connection:
            return connection.answer(self._answer_seconds)

    def stream(self, message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Ask and yield the answers until the daemon says that it was the last.

        With ``follow`` in the message there is no time-out between answers. Raises as
        :meth:`request`.
        """
        seconds = None if message.get("follow") else self._answer_seconds
        with self.open(message) as connection:
            while True:
                frame = connection.receive(seconds)
                if frame is None:
                    raise NoDaemonError(f"nothing came from the daemon for {seconds:g} s")
                if frame.get("end") is True:
                    return
                yield frame

    def submit(self, spec: JobSpec, archive: Archive) -> str:
        """Ship and queue a job; returns its id. Raises as :meth:`request`."""
        message = {
            "do": "submit",
            "spec": spec.to_dict(),
            "archive_bytes": len(archive.data),
            "archive_digest": archive.digest,
        }
        with self.open(message) as connection:
            # A daemon that refuses hangs up before it has read all; its answer says why.
            with contextlib.suppress(NoDaemonError):
                for start in range(0, len(archive.data), ARCHIVE_FRAME_BYTES):
                    connection.send({"data": archive.data[start : start + ARCHIVE_FRAME_BYTES]})
            answer = connection.answer(max(self._answer_seconds, 60.0))
        if not isinstance(answer.get("id"), str):
            raise ProtocolError("the daemon's answer to submit has no id")
        return str(answer["id"])

    def open(self, message: Mapping[str, Any]) -> Connection:
        """A connection on which ``message`` has been sent.

        Raises:
            NoDaemonError: no daemon under the home answers.
        """
        paths = sockets(self.home)
        failure = NoDaemonError(
            f"no daemon runs at {self.home} (start one with 'elasticctl local up',"
            " or name its home with --home)"
        )
        for path in paths:
            try:
                if len(paths) > 1:
                    probe(path)
                connection = Connection(path)
            except NoDaemonError as error:
                failure = error
                continue
            try:
                connection.send(message)
            except BaseException:
                connection.close()
                raise
            return connection
        raise failure


def probe(path: Path, seconds: float = PROBE_SECONDS) -> dict[str, Any]:
    """The ``status`` of the daemon at one socket.

    A stopped daemon still accepts connections, so only an answer proves that one is there.

    Raises:
        NoDaemonError: nothing answers in time.
    """
    with Connection(path) as connection:
        connection.send({"do": "status"})
        return connection.answer(seconds)


def _checked(frame: dict[str, Any]) -> dict[str, Any]:
    if "error" in frame:
        kind = UsageError if frame.get("code") == 2 else OperationError
        raise kind(str(frame["error"]))
    return frame
