"""When what a crash left of checkpoints is swept away: at the start, or once nobody writes."""

from __future__ import annotations

from collections.abc import Callable

from elasticd.checkpoints.manifest import Stored
from elasticd.shell.storage.states import States
from elasticd.types import JobId


class Sweeping:
    """A trainer that was taken over may be writing. Of its job that waits until no process of it is
    here."""

    def __init__(self, states: States, runs: Callable[[JobId], bool]) -> None:
        """``runs``: whether a process of a job is here."""
        self._states, self._runs = states, runs
        self._waiting: set[JobId] = set()

    def begin(self) -> dict[JobId, tuple[Stored, ...]]:
        """What is stored of each job, after the sweep. Those that were taken over are known."""
        self._waiting = {job for job in self._states.store.jobs() if self._runs(job)}
        return self._states.stored(self._waiting)

    def child_ended(self) -> None:
        """Sweep what had to wait for that."""
        over = {job for job in self._waiting if not self._runs(job)}
        self._waiting -= over
        for job in sorted(over):
            self._states.sweep(job)
