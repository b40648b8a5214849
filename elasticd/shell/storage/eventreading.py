"""Reads and writes many events beside other work.

The loop only notes where they are. Files are read, and what was read is put in order, in a thread.
A file is not in the order of time: what other nodes tell late is behind. Of many files each is read
twice, to see when it begins and when its turn has come, so that few are in memory at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path

from elasticd.errors import OperationError
from elasticd.shell.storage.eventform import (
    NOTABLE,
    Event,
    key_of,
    order_of,
    outlives,
    public,
    read_sound,
)
from elasticd.shell.storage.eventlasting import LASTING, WORLD, lasting, members_of
from elasticd.shell.storage.eventlog import MAX_WAITING_EVENTS, EventLog
from elasticd.types import JobId

EVENTS_AT_ONCE = 64
"""Told before the loop has its turn."""

RUNS_AT_ONCE = 64
"""Looked at before who has given up is noticed."""

Run = list[Event] | Path
Runs = Sequence[Run]
Order = tuple[float, str, int]
Begun = tuple[Order, int, Run]
"""When a run begins, its place, and the run."""


@dataclass(frozen=True, slots=True)
class EventReading:
    """Of one node's log."""

    log: EventLog

    async def so_far(self, job: JobId | None) -> AsyncIterator[Event]:
        """What happened to a job, or (None) everything, in the order of time."""
        async for events in self._history(job, 0.0):
            for event in events:
                yield public(event)

    async def _history(self, job: JobId | None, since: float) -> AsyncIterator[list[Event]]:
        """All that was kept when there were these runs, :data:`EVENTS_AT_ONCE` at a time."""
        runs = await asyncio.to_thread(_settled, self.log, self.log.runs(job), since)
        begun: list[Begun] = []
        for at in range(0, len(runs), RUNS_AT_ONCE):
            end = min(at + RUNS_AT_ONCE, len(runs))
            begun += await asyncio.to_thread(_begun, runs, at, end)
        events = _merged(begun)
        while some := await asyncio.to_thread(_next, events):
            yield some

    async def follow(self, job: JobId | None) -> AsyncIterator[Event]:
        """The history, then what comes, for ever.

        Raises:
            OperationError: the reader is :data:`MAX_WAITING_EVENTS` behind.
        """
        async with contextlib.aclosing(self._followed(job, 0.0)) as events:
            async for event, _ in events:
                yield public(event)

    async def happening(self, since: float) -> AsyncIterator[tuple[Event, bool]]:
        """The same of all jobs, each with whether it has happened just now, whatever the clock of
        its node says. ``since``: not of jobs that have ended, unless something was written of them
        after that Unix time.

        Raises:
            OperationError: as above.
        """
        async with contextlib.aclosing(self._followed(None, since)) as events:
            async for event, came in events:
                yield public(event), came and self.log.news.has(event)

    async def _followed(
        self, job: JobId | None, since: float
    ) -> AsyncGenerator[tuple[Event, bool]]:
        """Each with whether it came since this began."""
        with self.log.followed() as queue:
            meanwhile: dict[tuple[str, int], Event] = {}
            async for events in self._history(job, since):
                # What came meanwhile may have been read from the disk as well.
                meanwhile |= _taken_out(queue)
                if len(meanwhile) > MAX_WAITING_EVENTS:
                    raise _behind()
                for event in events:
                    if key_of(event) not in meanwhile:
                        yield event, False
            meanwhile |= _taken_out(queue)
            for event in meanwhile.values():
                if job is None or event.get("job") == job:
                    yield event, True
            while (event_or_end := await queue.get()) is not None:
                if job is None or event_or_end.get("job") == job:
                    yield event_or_end, True
            raise _behind()

    async def last_members(self, job: JobId, least: int = 1) -> list[str]:
        """Of the job's newest world that was told of and has so many; without such a one of the
        newest."""
        told = reversed(await self.lasting(job))
        worlds = [members_of(event) for event in told if event["kind"] == WORLD]
        return next((each for each in worlds if len(each) >= least), worlds[0] if worlds else [])

    async def of_kinds(self, job: JobId, *kinds: str) -> list[Event]:
        """All events of a job that are of one of these kinds, in the order of time."""
        runs = self.log.runs(job)
        return await asyncio.to_thread(_of_kinds, self.log, runs, frozenset(kinds))

    async def notable(self, job: JobId) -> list[Event]:
        """The newest faults and decisions of a job, in the order of time."""
        return [public(each) for each in await self.lasting(job) if each["kind"] in NOTABLE]

    async def lasting(self, job: JobId) -> list[Event]:
        """What is asked for of a job however much has come since, in the order of time: read from
        the disk the first time at most."""
        if (known := self.log.lasting(job)) is not None:
            return known
        read = self.log.lasting_read(job)
        found = lasting(await self.of_kinds(job, *LASTING))
        read(found)
        return found


def _behind() -> OperationError:
    return OperationError(f"fell {MAX_WAITING_EVENTS} events behind")


def _settled(log: EventLog, runs: Iterator[Run], since: float = 0.0) -> Runs:
    """With all that was kept when there were these runs."""
    if since:
        log.settled()
        return [run for run in runs if not isinstance(run, Path) or _written_since(run, since)]
    found = [*runs]
    if any(isinstance(run, Path) for run in found):
        log.settled()
    return found


def _written_since(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except OSError:
        return False


def _events(run: Run) -> list[Event]:
    return read_sound(run) if isinstance(run, Path) else run


def _shown(run: Run) -> list[Event]:
    return [event for event in _events(run) if not outlives(event)]


def _begun(runs: Runs, start: int, end: int) -> list[Begun]:
    """Of some of the runs, without those that are empty. Blocks."""
    if len(runs) == 1:
        return [((-inf, "", 0), 0, runs[0])]  # nothing is to be known of it before
    some = ((place, _shown(runs[place])) for place in range(start, end))
    return [(min(map(order_of, each)), place, runs[place]) for place, each in some if each]


def _merged(begun: Iterable[Begun]) -> Iterator[Event]:
    """In the order of time. Blocks; many short sorts let the loop go on, a long one would not."""
    opened: list[tuple[Order, int, Event, Iterator[Event]]] = []
    for begins, place, run in [*sorted(begun, key=lambda each: each[:2]), ((inf, "", 0), -1, [])]:
        while opened and opened[0][0] < begins:
            _, other, event, rest = opened[0]
            yield event
            if (following := next(rest, None)) is None:
                heapq.heappop(opened)
            else:
                heapq.heapreplace(opened, (order_of(following), other, following, rest))
        rest = iter(sorted(_shown(run), key=order_of))
        if (first := next(rest, None)) is not None:
            heapq.heappush(opened, (order_of(first), place, first, rest))


def _next(events: Iterator[Event]) -> list[Event]:
    return list(islice(events, EVENTS_AT_ONCE))


def _of_kinds(log: EventLog, runs: Iterator[Run], kinds: frozenset[str]) -> list[Event]:
    found = [
        event for run in _settled(log, runs) for event in _events(run) if event.get("kind") in kinds
    ]
    return sorted(found, key=order_of)


def _taken_out(queue: asyncio.Queue[Event | None]) -> dict[tuple[str, int], Event]:
    """What waits in a queue. A last None, by which it ends, stays."""
    found: dict[tuple[str, int], Event] = {}
    while not queue.empty():
        if (event := queue.get_nowait()) is None:
            queue.put_nowait(None)
            break
        found[key_of(event)] = event
    return found
