"""Reads and writes many events beside other work.

The loop only notes where they are. Files are read, and what was read is put in order, in a thread.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.shell.storage.eventlog import (
    MAX_WAITING_EVENTS,
    NOTABLE,
    NOTABLE_EVENTS,
    Event,
    EventLog,
    key_of,
    order_of,
    public,
    read_sound,
)
from elasticd.types import JobId

EVENTS_AT_ONCE = 64
"""Told before the loop has its turn."""

Runs = Sequence[list[Event] | Path]


@dataclass(frozen=True, slots=True)
class EventReading:
    """Of one node's log."""

    log: EventLog

    async def so_far(self, job: JobId | None) -> AsyncIterator[Event]:
        """What happened to a job, or (None) everything, in the order of time."""
        for number, event in enumerate(
            await asyncio.to_thread(_read, self.log, self.log.runs(job))
        ):
            if number % EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            yield public(event)

    async def follow(self, job: JobId | None, since: float = 0.0) -> AsyncIterator[Event]:
        """The history, then what comes, for ever. ``since``: not of jobs that have ended, unless
        something was written of them after that Unix time.

        Raises:
            OperationError: the reader is :data:`MAX_WAITING_EVENTS` behind.
        """
        with self.log.followed() as queue:
            history = await asyncio.to_thread(_read, self.log, self.log.runs(job), since)
            # What came meanwhile may have been read from the disk as well.
            meanwhile = _taken_out(queue)
            for number, event in enumerate(history):
                if number % EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                if key_of(event) not in meanwhile:
                    yield public(event)
            for event in meanwhile.values():
                if job is None or event.get("job") == job:
                    yield public(event)
            while (event_or_end := await queue.get()) is not None:
                if job is None or event_or_end.get("job") == job:
                    yield public(event_or_end)
            raise OperationError(f"fell {MAX_WAITING_EVENTS} events behind")

    async def last_members(self, job: JobId, least: int = 1) -> list[str]:
        """Of the job's newest world that was told of and has so many; without such a one of the
        newest."""
        formed = await self.of_kinds(job, "world_formed")
        worlds = [list(event.get("members", ())) for event in reversed(formed)]
        return next((each for each in worlds if len(each) >= least), worlds[0] if worlds else [])

    async def of_kinds(self, job: JobId, *kinds: str) -> list[Event]:
        """All events of a job that are of one of these kinds, in the order of time."""
        runs = self.log.runs(job)
        return await asyncio.to_thread(_of_kinds, self.log, runs, frozenset(kinds))

    async def notable(self, job: JobId) -> list[Event]:
        """The newest faults and decisions of a job, in the order of time."""
        if (known := self.log.notable(job)) is not None:
            return known
        found = await self.of_kinds(job, *NOTABLE)
        return [public(event) for event in found[-NOTABLE_EVENTS:]]


def _read(log: EventLog, runs: Runs, since: float = 0.0) -> list[Event]:
    """With all that was kept when there were these runs."""
    if any(isinstance(run, Path) for run in runs):
        log.settled()
    if since:
        runs = [run for run in runs if not isinstance(run, Path) or _written_since(run, since)]
    return merged(runs)


def _written_since(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except OSError:
        return False


def merged(runs: Runs) -> list[Event]:
    """In the order of time. Blocks; many short sorts let the loop go on, a long one would not."""
    each = (read_sound(run) if isinstance(run, Path) else run for run in runs)
    return list(heapq.merge(*(sorted(run, key=order_of) for run in each), key=order_of))


def _of_kinds(log: EventLog, runs: Runs, kinds: frozenset[str]) -> list[Event]:
    return [event for event in _read(log, runs) if event.get("kind") in kinds]


def _taken_out(queue: asyncio.Queue[Event | None]) -> dict[tuple[str, int], Event]:
    """What waits in a queue. A last None, by which it ends, stays."""
    found: dict[tuple[str, int], Event] = {}
    while not queue.empty():
        if (event := queue.get_nowait()) is None:
            queue.put_nowait(None)
            break
        found[key_of(event)] = event
    return found
