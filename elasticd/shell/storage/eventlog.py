"""The history of what happened, replicated to every node.

An event belongs to an origin (one run of one daemon) and has a number there, from 1 without gaps.
Nodes tell one another up to which number they have each origin's events and send what is missing;
so any living daemon has the whole history, whoever wrote it and died since.

On disk: one append-only file for each job and one for the cluster, in the frames of the journal but
not synced: what a power cut takes from one node comes back from another. The loop does not wait for
them: the disk that the log is given writes in a thread. Of each job the last
:data:`~elasticd.shell.storage.keptevents.KEPT_EVENTS` are kept, and the few that
:mod:`~elasticd.shell.storage.eventlasting` names.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path

import structlog

from elasticd.shell.inorder import AtOnce, EventDisk
from elasticd.shell.storage import eventshelf
from elasticd.shell.storage.durable import write_whole
from elasticd.shell.storage.eventfiles import EventFiles
from elasticd.shell.storage.eventfloors import FLOOR, FLOORS_FILE, EventFloors
from elasticd.shell.storage.eventform import (
    MAX_EVENT_BYTES,
    Event,
    check,
    file_name,
    fitting,
    frames,
    is_sound,
    key_of,
    outlives,
)
from elasticd.shell.storage.eventlacking import LackingEvents
from elasticd.shell.storage.eventnews import EventNews
from elasticd.shell.storage.eventshelf import ShelvedEvents
from elasticd.shell.storage.journal import frame, salvage, scan
from elasticd.shell.storage.keptevents import KeptEvents
from elasticd.shell.storage.seen import SeenNumbers
from elasticd.types import JobId

MAX_WAITING_EVENTS = 10_000
"""How far a follower may fall behind."""

log = structlog.get_logger(__name__)


class EventLog:
    """All events that this node knows. Runs in the event loop's thread.

    Attributes:
        news: which of them came as they happened.
    """

    def __init__(self, folder: Path, origin: str, disk: EventDisk | None = None) -> None:
        """Read what is in ``folder``, which is made if need be; damaged parts are left out.
        ``disk`` writes from then on, and reads what is needed again; without one that is done at
        once.

        Raises:
            OSError: the folder can't be read or written.
        """
        self._files = EventFiles(folder, disk or AtOnce())
        self._origin = origin
        self._progress = SeenNumbers()
        self._floors = EventFloors(self._files, self._progress)
        self._kept = KeptEvents(self._files, self._dropped)
        self._lacking = LackingEvents(self._kept, self._progress, self._floors)
        self._refused: set[str] = set()
        """Jobs that were forgotten."""
        self._followers: set[asyncio.Queue[Event | None]] = set()
        self.news = EventNews(origin)
        folder.mkdir(parents=True, exist_ok=True)
        self._load(folder)

    def _load(self, folder: Path) -> None:
        """What lies there; of jobs that have ended only which events there are."""
        index = eventshelf.read(folder)
        shelves = index.take_same(folder)
        changed = bool(index.shelves) or not index.together
        self._kept.shelve(shelves)
        together = eventshelf.all_ranges(shelves) if changed else index.together
        for origin, held in together.items():
            for first, last in held:
                self._progress.note_range(origin, first, last)
        for name in sorted(n for n, _ in eventshelf.stamps(folder) if n not in shelves):
            if name != FLOORS_FILE:
                self._read(self._files.path(name), name)
                if (ended := self._kept.ended(name)) is not None and self._kept.has(name):
                    self._kept.put_away(name)
                    stamp = eventshelf.stamp_of(self._files.path(name))
                    shelves[name] = ShelvedEvents(*stamp, ended, self._kept.shelf(name))
                    changed = True
                self._kept.put_much_away()
        self._floors.read()
        if changed and (shelves or index.shelves):
            eventshelf.write(folder, shelves)

    def _read(self, path: Path, name: str) -> None:
        data = path.read_bytes()
        found = salvage(data)
        events = [event for event in found if is_sound(event)]
        for event in events:
            self._progress.note(*key_of(event))
            self._kept.add(event, len(data) // len(events))
        if scan(data).sound_bytes != len(data) or len(events) != len(found):
            # Damage stays out of what is appended from now on; peers send what it took.
            log.warning("a history was damaged; peers send what is missing", path=str(path))
            write_whole(path, frames(events))

    def write(self, event: Event) -> Event:
        """Number and keep an event of our own, clipped if it is too long; returns it as the other
        nodes must get it.

        Raises:
            ValueError, KeyError, TypeError: it lacks a time, or its job is no job id.
            OSError: the disk is full.
        """
        number = self._progress.upto(self._origin) + 1
        event = fitting({**event, "origin": self._origin, "number": number})
        self.add(event)
        return event

    def add(self, event: Event) -> bool:
        """Keep an event that another node may have sent; False if it was known, or its job was
        forgotten.

        Raises:
            ValueError, KeyError, TypeError: it is none.
            OSError: the disk is full; the event is not kept. A disk that writes beside the loop
                tells that otherwise.
        """
        origin, number = key_of(event)
        if event.get("kind") == FLOOR:
            return self._floors.take(origin, number)
        if self._progress.seen(origin, number):
            return False
        name, data = file_name(event), frame([event])
        if len(data) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of {len(data)} bytes is longer than {MAX_EVENT_BYTES}")
        check(event)
        if event.get("job") in self._refused:
            self._progress.note(origin, number)
            return False
        self._files.append(name, data)
        self._progress.note(origin, number)
        self._kept.add(event, len(data))
        self._kept.bound(name)
        for follower in () if outlives(event) else tuple(self._followers):
            self._tell(follower, event)
        return True

    def vector(self) -> dict[str, int]:
        """Per origin the number up to which nothing is missing here."""
        return self._progress.vector()

    def missing(
        self, vector: Mapping[str, int], after: tuple[str, int] = ("", 0)
    ) -> AsyncIterator[list[Event]]:
        """Batches of what a node with that vector lacks, to be given to its :meth:`add` in order.
        ``after``: the origin and number of the last one that it has been sent.

        Raises:
            TypeError: it is no vector.
        """
        if not isinstance(vector, Mapping):
            raise TypeError("a vector is a map")
        return self._lacking.batches(vector, after)

    def runs(self, job: JobId | None) -> Iterator[list[Event] | Path]:
        """What there is, of a job or (None) of all: events in memory, or the file with them."""
        return self._kept.runs(job)

    def settled(self) -> None:
        """Blocks until what was kept so far is in the files."""
        self._files.disk.settled()

    async def flushed(self, seconds: float) -> None:
        """Waits for that, but not for longer."""
        await self._files.disk.flushed(seconds)

    def lasting(self, job: JobId) -> list[Event] | None:
        """Those of a job that last, in the order of time. None: they lie on the disk."""
        return self._kept.lasting(job)

    def lasting_read(self, job: JobId) -> Callable[[list[Event]], None]:
        """To be told which those are, once they have been read from the disk."""
        return self._kept.lasting_read(job)

    def ended(self, job: JobId) -> float | None:
        """When the job ended; None: nothing is known of that."""
        return self._kept.ended(job)

    @contextlib.contextmanager
    def followed(self) -> Iterator[asyncio.Queue[Event | None]]:
        """What is kept from now on; None ends it: the reader is :data:`MAX_WAITING_EVENTS`
        behind."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(MAX_WAITING_EVENTS + 1)
        self._followers.add(queue)
        try:
            yield queue
        finally:
            self._followers.discard(queue)

    def _tell(self, follower: asyncio.Queue[Event | None], event: Event) -> None:
        if follower.qsize() < MAX_WAITING_EVENTS:
            follower.put_nowait(event)
        else:
            follower.put_nowait(None)
            self._followers.discard(follower)

    # --- dropping ---------------------------------------------------------------------------------

    def forget(self, jobs: Iterable[str]) -> None:
        """Of these jobs nothing is kept any more, whoever tells of them until this daemon ends."""
        several = list(jobs)
        self._refused.update(several)
        self.drop(several)

    def drop(self, jobs: Iterable[str]) -> bool:
        """Remove what there is of these jobs; whether there was anything."""
        there = [job for job in jobs if self._kept.has(job)]
        self._floors.dropped(last for job in there for last in self._kept.remove(job).items())
        return bool(there)

    def _dropped(self, events: Iterable[Event]) -> None:
        """Remember of whom."""
        origins = {event["origin"] for event in events}
        self._floors.dropped((origin, self._progress.upto(origin)) for origin in origins)
