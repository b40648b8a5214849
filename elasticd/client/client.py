"""Asks a daemon over its control socket (docs/protocols.md §3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticd.client.connection import ANSWER_SECONDS, Connection, NobodyListens, probe, refused
from elasticd.client.homes import sockets
from elasticd.core.words.codec import from_plain
from elasticd.core.words.requests.wire import ASKED
from elasticd.errors import NoDaemonError
from elasticd.settings.ownhome import refuse_open
from elasticd.types import JobId

if TYPE_CHECKING:
    # Classes are loaded where something else is asked: who asks for the status should not wait.
    from elasticd.archive import Archive
    from elasticd.core.words.requests.every import Request
    from elasticd.core.words.requests.jobs import ChangeOfJob, JobChanged, JobRetried, Submitted
    from elasticd.core.words.requests.nodes import ChangeOfNode, NodeChanged
    from elasticd.settings.job import JobSpec


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
        if hasattr(request, "parts"):
            request = replace(request, parts=True)  # type: ignore[arg-type]  # of any
        with self.open(request) as connection:
            return connection.whole_answer(self._answer_seconds)

    def wait_for(self, request: Request) -> dict[str, Any]:
        """As :meth:`request`, for as long as the daemon answers others."""
        with self.open(request) as connection:
            return connection.follow(None) or {}

    def change(
        self, request: ChangeOfJob | ChangeOfNode, again: Callable[[str], None] = lambda why: None
    ) -> JobChanged | NodeChanged:
        """Ask for a change of a job or a node, and return what it is now. If a daemon dies over it,
        another is asked: ``again`` is told why. Raises as :meth:`request`."""
        from elasticd.client.again import SureChange
        from elasticd.core.words.requests.jobs import ChangeOfJob, JobChanged
        from elasticd.core.words.requests.nodes import NodeChanged, PutOutNode

        change = SureChange(self, request, self._answer_seconds)
        if isinstance(request, PutOutNode):
            # Each daemon does that itself, and the next one may be the node that is put out.
            out: NodeChanged = from_plain(NodeChanged, change.once("'elasticctl nodes'"))
            return out
        if not isinstance(request, ChangeOfJob):
            node: NodeChanged = from_plain(NodeChanged, change.sure("'elasticctl nodes'", again))
            return node
        answer = change.sure(f"'elasticctl status {request.job}'", again)
        changed: JobChanged = from_plain(JobChanged, answer)
        if change.repeated and changed.state == "cancelled":
            changed = replace(changed, already=False)  # perhaps by who was asked before
        return changed

    def retry(
        self, job: JobId, *, memory: bool = False, again: Callable[[str], None] = lambda why: None
    ) -> JobRetried:
        """Have the nodes tried again that a job goes on without, and with ``memory`` what was
        given up for want of it. As :meth:`change`."""
        from elasticd.client.again import SureChange
        from elasticd.core.words.requests.jobs import JobRetried, RetryJob

        change = SureChange(self, RetryJob(job, memory), self._answer_seconds)
        answer = change.sure(f"'elasticctl status {job}'", again)
        retried: JobRetried = from_plain(JobRetried, answer)
        return retried

    def stream(self, request: Request, *, patient: bool = False) -> Iterator[dict[str, Any]]:
        """Ask and yield the answers until the daemon says that it was the last.

        Of a request with ``follow``, and ``patient`` with one that has the daemon read much, there
        is no time-out between answers, as long as the daemon answers others. Raises as
        :meth:`request`.
        """
        patient = patient or getattr(request, "follow", False)
        seconds = self._answer_seconds
        with self.open(request) as connection:
            while True:
                frame = connection.follow(None) if patient else connection.answer(seconds)
                if frame is None or frame.get("end") is True:
                    return
                yield frame

    def submit(self, spec: JobSpec, archive: Archive) -> JobId:
        """The id of the job that is queued, as by :meth:`queue`."""
        return self.queue(spec, archive).id

    def queue(
        self, spec: JobSpec, archive: Archive, again: Callable[[str], None] = lambda why: None
    ) -> Submitted:
        """Ship and queue a job, as by :class:`elasticd.client.queue.Submission`.

        ``again`` is told why another daemon, or the same, is asked again.
        """
        from elasticd.client.queue import Submission

        return Submission(self, spec, archive, again).queue()

    def open(self, request: Request, last: Path | None = None) -> Connection:
        """A connection on which ``request`` has been sent. The daemon of the socket ``last`` is
        tried after the others.

        Raises:
            NobodyListens: no daemon under the home runs.
            NoDaemonError: one may run, but none answers: what the first such lacks.
            UsageError: another account may have put that daemon there.
        """
        paths = sorted(sockets(self.home), key=lambda path: path == last)
        failure: NoDaemonError | None = None
        for path in paths:
            try:
                _refuse_strangers(path.parent)
                if len(paths) > 1:
                    probe(path)
                connection = Connection(path)
            except NobodyListens:
                continue
            except NoDaemonError as error:
                failure = failure or error
                continue
            try:
                connection.send(ASKED.encode(request))
            except BaseException:
                connection.close()
                raise
            return connection
        raise failure or NobodyListens(self.home)


def _refuse_strangers(home: Path) -> None:
    """What is asked, a job's files say, is for no daemon of another account. (Root may ask any.)

    Raises:
        NobodyListens: there is no such home.
        NoDaemonError: nobody can say whose it is.
        UsageError: another account could have laid the socket there.
    """
    if os.geteuid() == 0:
        return
    try:
        refuse_open(home)
    except OSError as error:
        raise refused(error, home) from None
