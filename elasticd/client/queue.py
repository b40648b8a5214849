"""Has a job queued once, whichever daemons die meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tenacity

from elasticd.archive import Archive
from elasticd.client.again import ASK_SECONDS, FIRST_PAUSE_SECONDS, Opens, attempts
from elasticd.client.connection import Connection
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.requests.jobs import ArchivePart, JobNamed, NameJob, SubmitJob, Submitted
from elasticd.errors import NoDaemonError, ProtocolError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.types import JobId

ARCHIVE_FRAME_BYTES = 1 << 20
ANSWER_SECONDS = 60.0
"""A disk may be slow, a node may be silent that is to have the files, and others may submit."""


def send_archive(connection: Connection, data: bytes) -> None:
    """Send a job's files, in parts.

    Raises:
        NoDaemonError: it has hung up.
    """
    for start in range(0, len(data), ARCHIVE_FRAME_BYTES):
        part = ArchivePart(data[start : start + ARCHIVE_FRAME_BYTES])
        connection.send(to_plain(part), ANSWER_SECONDS)


class Submission:
    """One job and its folder. However often it is said, and to whom, there is one job."""

    def __init__(
        self,
        client: Opens,
        spec: JobSpec,
        archive: Archive,
        again: Callable[[str], None],
        seconds: float = ASK_SECONDS,
        pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        """``again`` is told why it is said again, once for each reason in turn."""
        self._client, self._archive, self._again = client, archive, again
        self._request = SubmitJob(spec.to_dict(), len(archive.data), archive.digest)
        self._name = spec.job.name
        self._seconds, self._pause_seconds = seconds, pause_seconds
        self._asked: Path | None = None
        """Who was asked last: another one is asked before it."""
        self._sent = False
        """Some daemon has got all of it."""

    def queue(self) -> Submitted:
        """Ask for an id, then daemon after daemon until one has queued the job.

        Raises:
            NoDaemonError: none has, as far as is known; it says whether one may have.
            OperationError, UsageError: the daemon refuses.
            ProtocolError: what answers is no daemon.
        """
        try:
            named = self._named()
        except UsageError:
            return self._submit()  # an older daemon makes the id itself
        self._request = replace(self._request, id=named)
        try:
            for attempt in attempts(self._seconds, self._pause_seconds, self._again):
                with attempt:
                    submitted = self._submit()
        except NoDaemonError as error:
            raise NoDaemonError(f"{error}; {self._outcome(named)}") from None
        return submitted

    def _named(self) -> JobId:
        for attempt in tenacity.Retrying(
            stop=tenacity.stop_after_attempt(2),  # who was asked may have died
            retry=tenacity.retry_if_exception_type(NoDaemonError),
            reraise=True,
        ):
            with attempt, self._client.open(NameJob(self._name), self._asked) as connection:
                self._asked = connection.path
                named: JobNamed = from_plain(JobNamed, connection.answer())
        self._asked = None
        return named.id

    def _submit(self) -> Submitted:
        with self._client.open(self._request, self._asked) as connection:
            self._asked = connection.path
            # A daemon that refuses hangs up before it has read all; its answer says why.
            with contextlib.suppress(NoDaemonError):
                send_archive(connection, self._archive.data)
                self._sent = True
            answer = connection.answer(ANSWER_SECONDS)
        try:
            submitted: Submitted = from_plain(Submitted, answer)
        except ProtocolError:
            raise ProtocolError("the daemon's answer to submit has no id") from None
        return submitted

    def _outcome(self, named: JobId) -> str:
        if not self._sent:
            return "the job is not queued: submit it again once a daemon answers"
        return (
            f"a daemon has got the job and may have queued it: once one answers, 'elasticctl status"
            f" {named}' says; if there is no such job, submit it again"
        )
