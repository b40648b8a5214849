"""The newest faults and decisions of jobs, for who asks for the status of all again and again."""

from __future__ import annotations

from collections.abc import Container

from elasticd.shell.storage.eventform import NOTABLE, NOTABLE_EVENTS, Event, order_of

KEPT_JOBS = 64
"""Of so many jobs whose events lie on the disk they stay at hand: of those that have not ended
before others, and of those asked for or told of last."""


class NotableEvents:
    """Per job, in the order of time. Runs in the event loop's thread."""

    def __init__(self, ended: Container[str]) -> None:
        self._ended = ended
        self._in_memory: dict[str, list[Event]] = {}
        self._put_away: dict[str, list[Event]] = {}
        """The one that was asked for last is the last."""
        self.missed = 0
        """So many came of jobs of which the earlier ones are not at hand."""

    def of(self, job: str, on_disk: bool) -> list[Event] | None:
        """None: they are to be looked for on the disk, where the job's events are."""
        known = self._put_away.pop(job, None)
        if known is not None:
            self._put_away[job] = known
        return known if on_disk or known is not None else self._in_memory.get(job, [])

    def add(self, job: str, event: Event, on_disk: bool) -> None:
        """``on_disk``: earlier ones of the job lie there only."""
        known = self.of(job, on_disk)
        if event.get("kind") not in NOTABLE:
            return
        if known is None:
            self.missed += 1
        else:
            several = self._put_away if job in self._put_away else self._in_memory
            several[job] = sorted([*known, event], key=order_of)[-NOTABLE_EVENTS:]

    def put_away(self, job: str) -> None:
        """Its events are on the disk only from now on, and nothing of it was there before."""
        self._keep(job, self._in_memory.pop(job, []))

    def put_back(self, job: str, missed: int, events: list[Event]) -> None:
        """These were read from the disk. They count if nothing has been missed since ``missed``."""
        if missed == self.missed:
            self._keep(job, events)

    def _keep(self, job: str, events: list[Event]) -> None:
        self._put_away[job] = events
        if len(self._put_away) > KEPT_JOBS:
            oldest = next(iter(self._put_away))
            del self._put_away[next((j for j in self._put_away if j in self._ended), oldest)]

    def drop(self, job: str) -> None:
        """Of the job nothing is at hand any more."""
        self._in_memory.pop(job, None)
        self._put_away.pop(job, None)
