"""Looks at a cluster again and again, in a thread: no daemon that hangs holds anybody."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from elasticd.cli.keptlosses import kept_curves
from elasticd.cli.monitors.scene import MOST_LOG_LINES, Recollection, Scene, first
from elasticd.cli.watch import EventTail
from elasticd.client.client import Client
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.errors import ElasticdError, NoDaemonError, OperationError, ProtocolError
from elasticd.types import JobId

POLL_SECONDS = 1.0
ENDED_JOBS = 20
"""Of those that have ended so many are listed, the last."""
_LOG_LINES = 20
"""Of each rank."""
_READ_AT_ONCE = 2000
"""Events, before it is shown what there is."""


def status_of(client: Client, job: str | None) -> tuple[dict[str, Any], str | None]:
    """The cluster as it is, with that job in it, and the job's whole id.

    Raises:
        NoDaemonError: no daemon answers.
        OperationError: there is no such job.
    """
    return with_job(client, client.request(ShowStatus(ended=ENDED_JOBS)), job)


def with_job(
    client: Client, status: dict[str, Any], job: str | None
) -> tuple[dict[str, Any], str | None]:
    """``status``, as :func:`status_of` gives it. Raises as that."""
    jobs = status.get("jobs") or []
    if job is None:
        return status, first(Scene(status).jobs)
    if not any(each.get("id") == job for each in jobs):
        # It ended long ago, or this is how its id begins.
        named = client.request(ShowStatus(JobId(job))).get("jobs") or []
        if not named:
            raise OperationError(f"the daemon doesn't know the job {job}")
        job = str(named[0]["id"])
        known = {each.get("id") for each in jobs}
        status = {**status, "jobs": [*jobs, *(each for each in named if each["id"] not in known)]}
    return status, job


def look(client: Client, job: str | None) -> Scene:
    """One look, with all that there is to see. Raises as :func:`status_of`."""
    status, chosen = status_of(client, job)
    memory = Recollection(chosen)
    if chosen is not None:
        for event in client.stream(ReadEvents(JobId(chosen))):
            memory.happened(event)
        memory.remember(kept_curves(client, chosen))
        if (described := Scene(status).described(chosen)) is not None:
            memory.looked(described)
    return memory.scene(status)


class Lookout:
    """Has the newest :attr:`scene`. Whoever draws says which job is shown."""

    def __init__(
        self,
        client: Client,
        job: str | None,
        status: dict[str, Any],
        *,
        follows: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``follows``: nobody has named ``job``, so it may be another one later."""
        self._client, self._clock = client, clock
        self._follows = follows
        self._job, self._logs = job, False
        self._memory = Recollection(job)
        self._remembers = False
        self._tail: EventTail | None = None
        self._heard = clock()
        self._looked = 0.0
        self._over = threading.Event()
        self.scene = self._memory.scene(status)
        self._thread = threading.Thread(target=self._run, daemon=True, name="monitor")

    @property
    def job(self) -> str | None:
        """The job that is shown."""
        return self._job

    @property
    def logs(self) -> bool:
        """Whether its logs are."""
        return self._logs

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It ends soon; nobody has to wait for that."""
        self._over.set()

    def show(self, job: str | None) -> None:
        """Show another job, from now on."""
        self._job, self._follows = job, False
        self._looked = 0.0

    def show_logs(self, shown: bool) -> None:
        self._logs = shown
        self._looked = 0.0

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self.turn()
        except Exception as error:  # who watches is told; a traceback would spoil the picture
            text = f"internal error: {type(error).__name__}: {error}"
            self.scene = replace(self.scene, trouble=text)
        finally:
            if self._tail is not None:
                self._tail.close()

    def turn(self) -> None:
        """Read the events that come until it is time for the next look, then look."""
        try:
            if self._memory.job != self._job:
                self._begin_anew()
            self._read_events()
            if self._clock() - self._looked >= POLL_SECONDS:
                self._looked = self._clock()
                self._look()
        except (NoDaemonError, ProtocolError) as error:
            silent = self._clock() - self._heard
            text = f"no daemon has answered for {silent:.0f} s: {error}"
            self.scene = replace(self.scene, trouble=text)
            self._over.wait(POLL_SECONDS / 4)
        except ElasticdError as error:  # the job was forgotten, say
            self.scene = replace(self.scene, trouble=str(error))
            self._over.wait(POLL_SECONDS)

    def _begin_anew(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail, self._memory = None, Recollection(self._job)
        self._remembers = False

    def _look(self) -> None:
        status, chosen = status_of(self._client, None if self._follows else self._job)
        self._heard = self._clock()
        if self._follows and chosen != self._job:
            self._job = chosen
            self._begin_anew()
        job = self._memory.job
        logs = last_log_lines(self._client, job) if self._logs and job is not None else ()
        if job is not None and not self._remembers:
            self._memory.remember(kept_curves(self._client, job))
            self._remembers = True
        if (described := Scene(status).described(job)) is not None:
            self._memory.looked(described)
        self.scene = self._memory.scene(status, logs)

    def _read_events(self) -> None:
        job, until = self._memory.job, self._clock() + POLL_SECONDS / 4
        if job is None:
            self._over.wait(POLL_SECONDS / 4)
            return
        if self._tail is None:
            self._tail = EventTail(self._client, job)
        for _ in range(_READ_AT_ONCE):
            left = until - self._clock()
            if left <= 0 or self._over.is_set() or self._job != job:
                return
            if self._tail.ended:
                self._over.wait(left)
                return
            event = self._tail.poll(left)
            if event is not None:
                self._memory.happened(event)


def last_log_lines(client: Client, job: str) -> tuple[str, ...]:
    """The last lines of each rank."""
    lines: deque[str] = deque(maxlen=MOST_LOG_LINES)
    for piece in client.stream(ReadLogs(JobId(job), tail=_LOG_LINES)):
        if (why := piece.get("unread")) is not None:
            lines.append(f"{piece.get('node')} could not be read: {why}")
            continue
        who = piece.get("node") if piece.get("rank") is None else piece["rank"]
        lines += [f"[{who}] {line}" for line in str(piece.get("text", "")).splitlines()]
    return tuple(lines)
