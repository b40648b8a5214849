"""The outputs of jobs that have ended are copied, and made whole: a few jobs at a time, and the
newest first.

A node that joins is told of years of such jobs at once. Each takes a look at its events, and a
question to the node that was main; jobs that train are not to wait for all that.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from elasticd.shell.tasks import Tasks
from elasticd.types import JobId

JOBS_AT_ONCE = 4
JOBS_IN_A_ROUND = 64
"""Before it is looked again which jobs' outputs the rules keep."""

Work = Callable[[JobId], Coroutine[Any, Any, None]]


class EndedOutputs:
    """Runs in the event loop's thread.

    Attributes:
        beyond: the jobs whose outputs this node removes soon: it asks nobody for them.
    """

    def __init__(self, works: Sequence[Work], runs: Callable[[JobId], bool], tasks: Tasks) -> None:
        """``works``: what is done for each job; ``runs``: whether a process of it is here."""
        self._works, self._runs, self._tasks = works, runs, tasks
        self.beyond: Callable[[], Collection[JobId]] = frozenset
        self._waiting: dict[JobId, int] = {}
        """Their numbers."""
        self._workers = 0

    def add(self, job: JobId, number: int) -> None:
        """It has ended. ``number``: of those that wait the highest has its turn first. One that has
        a process here has only just ended, and is done at once."""
        if self._runs(job):
            self._start(job)
            return
        self._waiting[job] = number
        if self._workers < JOBS_AT_ONCE:
            self._workers += 1
            self._tasks.start(self._work())

    def _start(self, job: JobId) -> list[asyncio.Task[None]]:
        return [self._tasks.start(work(job)) for work in self._works]

    async def _work(self) -> None:
        try:
            while self._waiting:
                beyond = self.beyond()  # where this fails all wait on
                some = heapq.nlargest(JOBS_IN_A_ROUND, self._waiting, self._waiting.__getitem__)
                for job in some:
                    del self._waiting[job]
                for job in some:
                    if job not in beyond:
                        await asyncio.wait(self._start(job))
        finally:
            self._workers -= 1
