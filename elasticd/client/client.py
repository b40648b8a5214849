"""Asks a daemon over its control socket (docs/protocols.md §3)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from elasticd.archive import Archive
from elasticd.client.connection import ANSWER_SECONDS, Connection, probe
from elasticd.client.homes import sockets
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.requests import (
    REQUESTS,
    ArchivePart,
    ChangeOfJob,
    ChangeOfNode,
    JobChanged,
    JobNamed,
    JobRetried,
    NameJob,
    NodeChanged,
    ReadEvents,
    ReadLogs,
    Request,
    RetryJob,
    ShowStatus,
    SubmitJob,
    Submitted,
)
from elasticd.errors import NoDaemonError, ProtocolError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.types import JobId

ARCHIVE_FRAME_BYTES = 1 << 20
SUBMIT_TRIES = 3
"""So many daemons may die while they take a job."""


class Client:
    """Talks to the daemon of ``home``, or to the first of its nodes that answers."""

    def __init__(self, home: Path, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.home = home
        self._answer_seconds = answer_seconds

    def request(self, request: Request) -> dict[str, Any]:
        """Ask and return the answer.

        Raises:
            NoDaemonError: no daemon answers in time.
            OperationError, UsageError: the daemon refuses.
            ProtocolError: what answers is no daemon.
        """
        if isinstance(request, ShowStatus):
            request = replace(request, parts=True)
        with self.open(request) as connection:
            return connection.whole_answer(self._answer_seconds)

    def change(self, request: ChangeOfJob | ChangeOfNode) -> JobChanged | NodeChanged:
        """Ask for a change of a job or a node, and return what it is now. Raises as
        :meth:`request`."""
        changed = NodeChanged if isinstance(request, ChangeOfNode) else JobChanged
        answer: JobChanged | NodeChanged = from_plain(changed, self.request(request))
        return answer

    def retry(self, job: JobId, *, memory: bool = False) -> JobRetried:
        """Have the nodes tried again that a job goes on without, and with ``memory`` what was
        given up for want of it. Raises as :meth:`request`."""
        answer: JobRetried = from_plain(JobRetried, self.request(RetryJob(job, memory)))
        return answer

    def stream(self, request: Request) -> Iterator[dict[str, Any]]:
        """Ask and yield the answers until the daemon says that it was the last.

        Of a request with ``follow`` there is no time-out between answers. Raises as
        :meth:`request`.
        """
        follows = isinstance(request, ReadLogs | ReadEvents) and request.follow
        seconds = None if follows else self._answer_seconds
        with self.open(request) as connection:
            while True:
                frame = connection.receive(seconds)
                if frame is None:
                    raise NoDaemonError(f"nothing came from the daemon for {seconds:g} s")
                if frame.get("end") is True:
                    return
                yield frame

    def submit(self, spec: JobSpec, archive: Archive) -> JobId:
        """The id of the job that is queued, as by :meth:`queue`."""
        return self.queue(spec, archive).id

    def queue(self, spec: JobSpec, archive: Archive) -> Submitted:
        """Ship and queue a job. If the daemon dies meanwhile the next one is asked, for the same
        job: however often it is said, there is one.

        Raises:
            NoDaemonError: no daemon is left; the error names the job's id, if one may have it.
            OperationError, UsageError, ProtocolError: as :meth:`request`.
        """
        request = SubmitJob(spec.to_dict(), len(archive.data), archive.digest)
        try:
            named: JobNamed = from_plain(JobNamed, self.request(NameJob(spec.job.name)))
        except UsageError:
            return self._submit(request, archive)  # an older daemon makes the id itself
        request = replace(request, id=named.id)
        for _ in range(SUBMIT_TRIES - 1):
            with contextlib.suppress(NoDaemonError):
                return self._submit(request, archive)
        try:
            return self._submit(request, archive)
        except NoDaemonError as error:
            raise NoDaemonError(
                f"{error}; it may have taken the job: once a daemon answers,"
                f" 'elasticctl status {named.id}' says"
            ) from None

    def _submit(self, request: SubmitJob, archive: Archive) -> Submitted:
        with self.open(request) as connection:
            # A daemon that refuses hangs up before it has read all; its answer says why.
            with contextlib.suppress(NoDaemonError):
                for start in range(0, len(archive.data), ARCHIVE_FRAME_BYTES):
                    part = ArchivePart(archive.data[start : start + ARCHIVE_FRAME_BYTES])
                    connection.send(to_plain(part))
            answer = connection.answer(max(self._answer_seconds, 60.0))
        try:
            submitted: Submitted = from_plain(Submitted, answer)
        except ProtocolError:
            raise ProtocolError("the daemon's answer to submit has no id") from None
        return submitted

    def open(self, request: Request) -> Connection:
        """A connection on which ``request`` has been sent.

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
                connection.send(REQUESTS.encode(request))
            except BaseException:
                connection.close()
                raise
            return connection
        raise failure
