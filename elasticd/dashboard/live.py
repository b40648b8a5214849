"""One look a second for all pages together, in a thread, while there is a page.

However many pages are open, the daemon is asked once, and what is sent is made once for all pages
that show the same job.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticd.cli.monitors.looking import ENDED_JOBS, with_job
from elasticd.cli.monitors.scene import Scene
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.dashboard import telling
from elasticd.dashboard.watching import JobWatch, Watches
from elasticd.errors import ElasticdError, OperationError, UsageError

LOOK_SECONDS = 1.0
COURSE_SECONDS = 5.0
"""The course is told again after so long even if there was no event: time passes in it."""
PING_SECONDS = 10.0
MOST_PAGES = 128
MOST_SHOWN = 8
"""Different jobs that pages may show at once; the others see the one that has its turn."""
Wanted = str | None
"""The job that a page asked for; None: the one that has its turn."""


@dataclass(slots=True)
class _Shown:
    """What pages with the same wish are sent, as it is on the wire; the numbers change with it.

    ``status``: the last one that a daemon gave, and ``job`` the one of it that is shown.
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    job: str | None = None
    look: bytes = b""
    looks: int = 0
    course: bytes = b""
    courses: int = 0
    course_of: tuple[str, int] = ("", -1)
    told_at: float = 0.0


class Live:
    """Used from one event loop; looks in a thread of its own."""

    def __init__(
        self,
        client: Client,
        watches: Watches,
        clock: Callable[[], float] = time.time,
        pause: float = LOOK_SECONDS,
    ) -> None:
        self._client, self._watches, self._clock, self._pause = client, watches, clock, pause
        self._wanted: Counter[Wanted] = Counter()
        self._shown: dict[Wanted, _Shown] = {}
        self._pulse = asyncio.Event()
        self._hurry = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.last_visit = time.monotonic()

    @property
    def pages(self) -> int:
        """That are open."""
        return self._wanted.total()

    def stop(self) -> None:
        self._over.set()
        self._hurry.set()

    def enter(self, wanted: Wanted) -> Wanted | Literal[False]:
        """Count one page more, until it :meth:`leaves <leave>`; the wish that it is granted.
        False: too many are open."""
        if self.pages >= MOST_PAGES:
            return False
        if wanted not in self._wanted and len(self._wanted) >= MOST_SHOWN:
            wanted = None
        self._wanted[wanted] += 1
        self._shown.setdefault(wanted, _Shown())
        return wanted

    def leave(self, wanted: Wanted) -> None:
        """A page that has entered with that wish is gone."""
        self.last_visit = time.monotonic()
        self._wanted[wanted] -= 1
        if not self._wanted[wanted]:
            del self._wanted[wanted]
            self._shown.pop(wanted, None)

    async def stream(self, wanted: Wanted, let_in: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Server-sent events for one page that has entered, until it goes or is let in no more."""
        shown = self._shown[wanted]
        self._look_now()
        yield b"retry: 1000\n\n"
        looks = courses = -1
        if not shown.looks:
            looks = courses = 0  # nothing yet
        while not self._over.is_set() and let_in():
            pulse = self._pulse
            if shown.looks != looks:
                looks = shown.looks
                yield shown.look
            if shown.courses != courses and shown.course:
                courses = shown.courses
                yield shown.course
            try:
                await asyncio.wait_for(pulse.wait(), PING_SECONDS)
            except TimeoutError:
                yield b": nothing new\n\n"

    def _look_now(self) -> None:
        self._hurry.set()
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(
                target=self._run, args=(loop,), daemon=True, name="pages"
            )
            self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._over.is_set():
            self._hurry.clear()
            self._look_around()
            if not self._over.is_set():
                loop.call_soon_threadsafe(self._tell)
            # Where there is no page it waits for the next one.
            self._hurry.wait(self._pause if self._shown else None)

    def _look_around(self) -> None:
        """For all pages. A daemon that hangs is waited for once."""
        silent: ElasticdError | None = None
        status: dict[str, Any] = {}
        try:
            status = self._client.request(ShowStatus(ended=ENDED_JOBS))
        except ElasticdError as error:
            silent = error
        for wanted, shown in list(self._shown.items()):
            try:
                if silent is None:
                    silent = self._look(wanted, shown, status)
                else:
                    self._tell_look(shown, str(silent), live=False)
            except Exception as error:  # who watches is told, and the next look may do
                shown.status, shown.job = {}, None
                text = f"internal error: {type(error).__name__}: {error}"
                self._tell_look(shown, text, live=False)

    def _tell(self) -> None:
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    def _look(self, wanted: Wanted, shown: _Shown, status: dict[str, Any]) -> ElasticdError | None:
        """Returns why the daemon answers no more."""
        trouble = ""
        try:
            shown.status, shown.job = with_job(self._client, status, wanted)
        except (OperationError, UsageError) as error:  # it was forgotten, say
            shown.status, shown.job = with_job(self._client, status, None)
            trouble = f"{error}; this is the job that has its turn"
        except ElasticdError as error:
            self._tell_look(shown, str(error), live=False)
            return error
        self._tell_look(shown, trouble, live=True)
        if shown.job is not None:
            watch, now = self._watches.of(shown.job), self._clock()
            described = Scene(shown.status).described(shown.job)
            if described is not None:
                watch.looked(described, now)
            self._tell_course(shown, watch, now)
        return None

    def _tell_look(self, shown: _Shown, trouble: str, *, live: bool) -> None:
        said = telling.look(shown.status, shown.job, self._clock(), trouble, live=live)
        shown.look = _sent("look", said)
        shown.looks += 1

    def _tell_course(self, shown: _Shown, watch: JobWatch, now: float) -> None:
        version = watch.job, watch.taken
        if version == shown.course_of and now - shown.told_at < COURSE_SECONDS:
            return
        shown.course_of, shown.told_at = version, now
        shown.course = _sent("course", telling.course(watch.seen(now)))
        shown.courses += 1


def _sent(kind: str, said: Mapping[str, Any]) -> bytes:
    """On the wire; what is sent has no line breaks."""
    return f"event: {kind}\ndata: {telling.wire(said)}\n\n".encode()
