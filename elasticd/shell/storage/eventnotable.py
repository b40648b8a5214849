"""The newest faults and decisions of jobs, for who asks for the status of all again and again."""

from __future__ import annotations

from elasticd.shell.storage.eventform import NOTABLE, NOTABLE_EVENTS, Event, order_of

KEPT_JOBS = 64
"""Of so many jobs whose events lie on the disk they stay at hand: of those put there last."""


class NotableEvents:
    """Per job, in the order of time. Runs in the event loop's thread."""

    def __init__(self) -> None:
        self._in_memory: dict[str, list[Event]] = {}
        self._put_away: dict[str, list[Event]] = {}

    def of(self, job: str, on_disk: bool) -> list[Event] | None:
        """None: they are to be looked for on the disk, where the job's events are."""
        known = self._put_away.get(job)
        return known if on_disk or known is not None else self._in_memory.get(job, [])

    def add(self, job: str, event: Event, on_disk: bool) -> None:
        """``on_disk``: earlier ones of the job lie there only."""
        known = self.of(job, on_disk)
        if known is not None and event.get("kind") in NOTABLE:
            several = self._put_away if job in self._put_away else self._in_memory
            several[job] = sorted([*known, event], key=order_of)[-NOTABLE_EVENTS:]

    def put_away(self, job: str) -> None:
        """Its events are on the disk only from now on, and nothing of it was there before."""
        self._put_away[job] = self._in_memory.pop(job, [])
        if len(self._put_away) > KEPT_JOBS:
            del self._put_away[next(iter(self._put_away))]

    def drop(self, job: str) -> None:
        """Of the job nothing is at hand any more."""
        self._in_memory.pop(job, None)
        self._put_away.pop(job, None)
