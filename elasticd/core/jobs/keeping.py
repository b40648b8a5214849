"""What is removed of ended jobs, oldest first, and why (``[keep]`` in elasticd.toml). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from elasticd.counting import counted
from elasticd.settings.keep import KeepRules
from elasticd.types import JobId

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that has ended, as one node has it."""

    id: JobId
    number: int
    ended: float | None
    """Unix seconds; None: nobody knows. It is then taken for older than those of which it is known,
    but never for too old."""
    size_bytes: int
    """What would go with it alone."""
    archive: str = ""
    archive_bytes: int = 0
    """Of the archive that it shares with others; it goes with the last of them."""


JUMP_SECONDS = 3 * _DAY_SECONDS
"""So far a clock may go ahead at once: a Mac sleeps, or is off for a weekend."""
DOUBT_SECONDS = _DAY_SECONDS
"""A clock that is further ahead is believed when it has been so for so long."""


@dataclass(slots=True)
class Calendar:
    """The time by which ended jobs age on one node. A clock that is a year ahead for a while must
    not make all of them too old: what is removed does not come back."""

    believed: float | None = None
    """Unix seconds, when it was last looked at; None: it never was."""
    looked_at: float = 0.0
    """Monotonic seconds, when that was."""
    doubted_since: float | None = None
    """Monotonic seconds: since when the clock is too far ahead."""

    def look(self, clock: float, running: float, newest: float | None) -> float:
        """What time it is.

        Args:
            clock: Unix seconds, as the node's clock has them.
            running: monotonic seconds.
            newest: when the last job ended; until a clock is believed no later time is known.
        """
        if self.believed is None:
            expected = clock if newest is None else newest
        else:
            expected = self.believed + running - self.looked_at
        self.looked_at = running
        since = self.doubted_since
        if clock <= expected + JUMP_SECONDS or (
            since is not None and running - since >= DOUBT_SECONDS
        ):
            self.believed, self.doubted_since = clock, None
        else:
            self.believed, self.doubted_since = expected, running if since is None else since
        return self.believed

    def doubt(self, clock: float) -> str:
        """Why jobs age by another time than that of the clock, or nothing."""
        if self.doubted_since is None or self.believed is None:
            return ""
        days = (clock - self.believed) / _DAY_SECONDS
        return (
            f"the clock is {counted(round(days), 'day')} ahead of what is known here: [keep] days"
            " does not count by it before it has been so for a day"
        )


REMOVED_AT_ONCE = 64
"""Of the jobs that the cluster forgets; a daemon has other things to do between them."""


@dataclass(frozen=True, slots=True)
class Removal:
    job: JobId
    reason: str


def surplus(jobs: Iterable[EndedJob], now: float, rules: KeepRules) -> list[Removal]:
    """What goes, oldest first. ``now``: Unix seconds."""
    newest_first = sorted(jobs, key=lambda job: (_ended(job), job.number, job.id), reverse=True)
    found: list[Removal] = []
    kept_bytes, kept_archives = 0, set[str]()
    for place, job in enumerate(newest_first):
        size = job.size_bytes + (0 if job.archive in kept_archives else job.archive_bytes)
        why = _beyond(job, place, kept_bytes + size, now, rules)
        if why:
            found.append(Removal(job.id, why))
        else:
            kept_bytes += size
            kept_archives.add(job.archive)
    return found[::-1]


def in_rounds(removals: Sequence[Removal]) -> Iterator[tuple[JobId, ...]]:
    """The jobs, as many at a time as the others are told of at once."""
    for first in range(0, len(removals), REMOVED_AT_ONCE):
        yield tuple(each.job for each in removals[first : first + REMOVED_AT_ONCE])


def _beyond(job: EndedJob, newer: int, with_newer: int, now: float, rules: KeepRules) -> str:
    days = (now - job.ended) / _DAY_SECONDS if job.ended is not None else 0.0
    if rules.days and days > rules.days:
        return f"it ended {counted(round(days), 'day')} ago ([keep] days = {rules.days})"
    if rules.jobs and newer >= rules.jobs:
        return f"{counted(newer, 'job')} ended later ([keep] jobs = {rules.jobs})"
    if rules.bytes and with_newer > rules.bytes:
        return (
            f"with jobs that ended later it takes {with_newer} bytes ([keep] bytes = {rules.bytes})"
        )
    return ""


def _ended(job: EndedJob) -> float:
    return -inf if job.ended is None else job.ended


@dataclass(frozen=True, slots=True)
class LogPart:
    """A file of a job's log, older ones first; ``open``: a process may write to it."""

    name: str
    size_bytes: int
    open: bool


def surplus_logs(parts: Sequence[LogPart], log_bytes: int) -> list[str]:
    """The names of those that go, so that the job's log has at most so many bytes. 0: none."""
    left = sum(part.size_bytes for part in parts)
    found: list[str] = []
    for part in parts:
        if not log_bytes or left <= log_bytes:
            break
        if not part.open:
            found.append(part.name)
            left -= part.size_bytes
    return found
