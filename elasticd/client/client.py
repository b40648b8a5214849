"""Asks a daemon over its control socket (docs/protocols.md §3)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from elasticd.archive import Archive
from elasticd.client.connection import ANSWER_SECONDS, Connection, probe
from elasticd.client.homes import sockets
from elasticd.errors import NoDaemonError, ProtocolError
from elasticd.settings.job import JobSpec

ARCHIVE_FRAME_BYTES = 1 << 20


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
