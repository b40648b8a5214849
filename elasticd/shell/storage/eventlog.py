"""The history of what happened, replicated to every node.

An event belongs to an origin (one run of one daemon) and has a number there, from 1 without gaps.
Nodes tell one another up to which number they have each origin's events and send what is missing;
so any living daemon has the whole history, whoever wrote it and died since.

On disk: one append-only file for each job and one for the cluster, in the frames of the journal but
not synced: what a power cut takes from one node comes back from another. The loop does not wait for
them: the disk that the log is given writes in a thread. Of each job the last :data:`KEPT_EVENTS`
are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import structlog

from elasticd.shell.inorder import AtOnce, EventDisk
from elasticd.shell.storage import eventshelf
from elasticd.shell.storage.durable import PARTIAL_SUFFIX, write_whole
from elasticd.shell.storage.eventfiles import SUFFIX, EventFiles
from elasticd.shell.storage.eventfloors import FLOOR, FLOORS_FILE, EventFloors, told
from elasticd.shell.storage.eventshelf import ShelvedEvents
from elasticd.shell.storage.journal import frame, salvage, scan
from elasticd.shell.storage.seen import SeenNumbers
from elasticd.types import JobId, is_job_id

NOTABLE = frozenset(
    (
        "fault_detected", "recovery_started", "recovery_finished", "batch_shrunk",
        "memory_relieved", "memory_pressure", "link_avoided", "node_dropped", "node_benched",
        "node_quarantined", "node_unfit", "recheck_differs", "state_chosen", "shares_moved",
        "growth_finished", "lineages_met", "lineage_opened", "step_skipped", "job_parked",
        "job_paused", "checkpoint_refused", "exact_lost", "job_stops", "memory_given_back",
        "updates_on_cpu",
    )
)  # fmt: skip
"""Faults, and what was decided: ``status`` shows the newest :data:`NOTABLE_EVENTS` of a job."""
NOTABLE_EVENTS = 5
LAST_EVENTS = ("job_finished", "job_failed", "job_cancelled")
KEPT_EVENTS = 20_000
"""Of each job, and of the cluster; a tenth more before the oldest are dropped."""
BATCH_EVENTS = 200
_READ_AT_ONCE = 32
"""Files of ended jobs that are kept in memory while another node is sent what it lacks."""
MAX_EVENT_BYTES = 64 * 1024
CLIPPED_LETTERS = 2000
CLIPPED_ITEMS = 8
MAX_WAITING_EVENTS = 10_000
"""How far a follower may fall behind."""

_CLUSTER_FILE = "_cluster"

Event = dict[str, Any]

log = structlog.get_logger(__name__)


class EventLog:
    """All events that this node knows. Runs in the event loop's thread."""

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
        self._refused: set[str] = set()
        """Jobs that were forgotten."""
        self._jobs: dict[str | None, dict[tuple[str, int], Event]] = {}
        self._notable: dict[str, list[Event]] = {}
        self._ended: dict[str, float] = {}
        self._shelves: dict[str, ShelvedEvents] = {}
        """Of jobs whose events lie on the disk only, except those that came since; they have
        ended."""
        self._shelved = eventshelf.Segments(self._shelves)
        self._unshelving: set[str] = set()
        """Something has come, and the others are being read."""
        self._followers: set[asyncio.Queue[Event | None]] = set()
        folder.mkdir(parents=True, exist_ok=True)
        index = eventshelf.read(folder)
        known, found = index.shelves, _stamps(folder)
        self._shelve(
            {job: known[job] for job in found if _is_as(known.get(job), found[job])}, index
        )
        for job in found:
            if job not in self._shelves and job != FLOORS_FILE:
                self._read(folder / (job + SUFFIX))
                self._put_away(job)
        self._floors.read()
        if self._shelves != known or (known and not index.together):
            eventshelf.write(folder, self._shelves)

    def write(self, event: Event) -> Event:
        """Number and keep an event of our own; returns it as the other nodes must get it.

        Of an event that is too long the long texts lose their beginnings: of a traceback, the last
        lines matter.

        Raises:
            ValueError, KeyError, TypeError: it lacks a time, or its job is no job id.
            OSError: the disk is full.
        """
        number = self._progress.upto(self._origin) + 1
        event = {**event, "origin": self._origin, "number": number}
        if len(frame([event])) > MAX_EVENT_BYTES:
            event = _clipped(event)
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
        name, data = _file_name(event), frame([event])
        if len(data) > MAX_EVENT_BYTES:
            raise ValueError(f"an event of {len(data)} bytes is longer than {MAX_EVENT_BYTES}")
        _check(event)
        if event.get("job") in self._refused:
            self._progress.note(origin, number)
            return False
        self._unshelve(event.get("job"))
        self._files.append(name, data)
        self._keep(event)
        self._drop_oldest(event.get("job"))
        for follower in tuple(self._followers):
            self._tell(follower, event)
        return True

    def vector(self) -> dict[str, int]:
        """Per origin the number up to which nothing is missing here."""
        return self._progress.vector()

    def missing(
        self, vector: Mapping[str, int], after: tuple[str, int] = ("", 0)
    ) -> AsyncIterator[list[Event]]:
        """Batches of what a node with that vector lacks, to be given to its :meth:`add` in order.
        ``after``: the origin and number of the last one that it has been sent. Files are read in a
        thread.

        Raises:
            TypeError: it is no vector.
        """
        if not isinstance(vector, Mapping):
            raise TypeError("a vector is a map")
        return self._missing(vector, after)

    async def _missing(
        self, vector: Mapping[str, int], after: tuple[str, int]
    ) -> AsyncIterator[list[Event]]:
        batch: list[Event] = []
        read: dict[str | None, dict[tuple[str, int], Event]] = {}
        async for origin, first, last, job in self._segments(vector, after[0]):
            first = max(first, vector.get(origin, 0) + 1)
            for number in range(first, last + 1):
                if (origin, number) <= after:
                    continue
                if job not in read:
                    if len(read) >= _READ_AT_ONCE:
                        read.clear()
                    read[job] = await self._read_of(job)
                if (event := read[job].get((origin, number))) is not None:
                    batch.append(event)
                if len(batch) == BATCH_EVENTS:
                    yield batch
                    batch = []
        # What we dropped it won't get; last, since a floor makes it refuse what is below.
        if floors := self._floors.lacking(vector):
            batch += told(floors, await self._origins())
        for start in range(0, len(batch), BATCH_EVENTS):
            yield batch[start : start + BATCH_EVENTS]

    async def _origins(self) -> set[str]:
        """Those of which there are events."""
        live = {origin for kept in self._jobs.values() for origin, _ in kept}
        return live | await asyncio.to_thread(self._shelved.origins) if self._shelves else live

    async def _segments(
        self, vector: Mapping[str, int], since: str
    ) -> AsyncIterator[tuple[str, int, int, str | None]]:
        """Which numbers of which origins, from ``since`` on, there are that the vector lacks, in
        order: from, to, of which job."""
        live: dict[str, list[tuple[int, int, str | None]]] = {}
        in_memory = frozenset(self._shelved.taken)
        for job, kept in self._jobs.items():
            for origin, number in kept:
                if number > vector.get(origin, 0) and origin >= since:
                    live.setdefault(origin, []).append((number, number, job))
        for origin in self._progress.origins():
            upto = vector.get(origin, 0)
            if origin < since or self._progress.highest(origin) <= upto:
                continue
            found = live.get(origin, [])
            if self._shelves:
                shelved = await asyncio.to_thread(self._shelved.of, origin)
                found += [s for s in shelved if s[1] > upto and s[2] not in in_memory]
            for first, last, job in sorted(found, key=lambda each: each[:2]):
                yield origin, first, last, job

    def runs(self, job: JobId | None) -> list[list[Event] | Path]:
        """What there is, of a job or (None) of all: events in memory, or the file with them."""
        jobs = dict.fromkeys((*self._jobs, *self._shelves)) if job is None else [job]
        return [
            self._files.path(each)
            if each is not None and each in self._shelves
            else list(self._jobs.get(each, {}).values())
            for each in jobs
        ]

    def settled(self) -> None:
        """Blocks until what was kept so far is in the files."""
        self._files.disk.settled()

    async def flushed(self, seconds: float) -> None:
        """Waits for that, but not for longer."""
        await self._files.disk.flushed(seconds)

    def notable(self, job: JobId) -> list[Event] | None:
        """The newest faults and decisions of a job, in the order of time. None: it has ended, and
        they lie on the disk."""
        if job in self._shelves:
            return None
        return [public(event) for event in self._notable.get(job, ())]

    def ended(self, job: JobId) -> float | None:
        """When the job ended; None: nothing is known of that."""
        return self._ended.get(job)

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

    def _keep(self, event: Event) -> None:
        kept = self._jobs.setdefault(event.get("job"), {})
        kept[key_of(event)] = event
        if (job := event.get("job")) is not None and event.get("kind") in NOTABLE:
            known = [*self._notable.get(job, ()), event]
            self._notable[job] = sorted(known, key=order_of)[-NOTABLE_EVENTS:]
        if job is not None and event.get("kind") in LAST_EVENTS:
            self._ended[job] = max(event["time"], self._ended.get(job, 0.0))
        self._progress.note(*key_of(event))

    # --- the shelf --------------------------------------------------------------------------------

    async def _read_of(self, job: str | None) -> dict[tuple[str, int], Event]:
        """The events of a job, wherever they are."""
        if job is None or job not in self._shelves:
            return self._jobs.get(job, {})
        return await asyncio.to_thread(self._files.read_now, job, _by_key)

    def _shelve(self, shelves: dict[str, ShelvedEvents], index: eventshelf.Index) -> None:
        self._shelves.update(shelves)
        self._ended = {job: shelf.ended for job, shelf in shelves.items()}
        for origin, held in index.together_of(shelves).items():
            for first, last in held:
                self._progress.note_range(origin, first, last)

    def _unshelve(self, job: str | None) -> None:
        """Something new is told of the job. Until the rest is read who asks is given the file."""
        if job is not None and job in self._shelves and job not in self._unshelving:
            self._unshelving.add(job)
            self._files.read(job, _by_key, partial(self._unshelved, job))

    def _unshelved(self, job: str, events: Mapping[tuple[str, int], Event]) -> None:
        if job not in self._unshelving:
            return  # it was forgotten meanwhile
        self._unshelving.discard(job)
        self._shelved.take_out(job)
        for event in events.values():
            self._keep(event)
        self._drop_oldest(job)

    def _put_away(self, job: str) -> None:
        """The events of a job that has ended are read again only when somebody asks."""
        if job in self._ended and job in self._jobs:
            stamp = eventshelf.stamp_of(self._files.path(job))
            ranges = eventshelf.ranges_of(self._jobs.pop(job))
            self._notable.pop(job, None)
            self._shelves[job] = ShelvedEvents.of(stamp, self._ended[job], ranges)

    # --- dropping ---------------------------------------------------------------------------------

    def _drop_oldest(self, job: str | None) -> None:
        """If there are too many of a job, keep the newest; remember of whom something was
        dropped."""
        if len(self._jobs[job]) <= KEPT_EVENTS + KEPT_EVENTS // 10 or job in self._shelves:
            return
        events = sorted(self._jobs[job].values(), key=order_of)
        dropped, kept = events[:-KEPT_EVENTS], events[-KEPT_EVENTS:]
        self._floors.dropped((e["origin"], self._progress.upto(e["origin"])) for e in dropped)
        self._jobs[job] = {key_of(event): event for event in kept}
        self._files.rewrite(_file_name(kept[0]), lambda: _frames(kept))

    def forget(self, jobs: Iterable[str]) -> None:
        """Of these jobs nothing is kept any more, whoever tells of them until this daemon ends."""
        several = list(jobs)
        self._refused.update(several)
        self.drop(several)

    def drop(self, jobs: Iterable[str]) -> bool:
        """Remove what there is of these jobs; whether there was anything."""
        there = [job for job in jobs if job in self._jobs or job in self._shelves]
        self._floors.dropped(last for job in there for last in self._remove(job).items())
        return bool(there)

    def _remove(self, job: str) -> dict[str, int]:
        """Per origin the number of the last event that was removed."""
        held = [eventshelf.ranges_of(self._jobs.pop(job, ()))]
        if job in self._shelves:
            held.append(self._shelved.take_out(job).ranges)
        self._unshelving.discard(job)
        self._notable.pop(job, None)
        self._ended.pop(job, None)
        self._files.remove(job)
        return eventshelf.last_numbers(held)

    # --- disk -------------------------------------------------------------------------------------

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        found = salvage(data)
        events = [event for event in found if _is_sound(event)]
        for event in events:
            self._keep(event)
        if scan(data).sound_bytes != len(data) or len(events) != len(found):
            # Damage stays out of what is appended from now on; peers send what it took.
            log.warning("a history was damaged; peers send what is missing", path=str(path))
            write_whole(path, _frames(events))


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """Of every file of events, in the order of names; what was written by halves goes."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(PARTIAL_SUFFIX):
                os.unlink(entry.path)
            elif entry.name.endswith(SUFFIX):
                stat = entry.stat()
                found[entry.name.removesuffix(SUFFIX)] = stat.st_size, stat.st_mtime_ns
    return dict(sorted(found.items()))


def _is_as(shelf: ShelvedEvents | None, stamp: tuple[int, int]) -> bool:
    """Whether the file is as it was when that was noted."""
    return shelf is not None and shelf.stamp == stamp


def read_sound(path: Path) -> list[Event]:
    """The events in a file; none if it can't be read."""
    try:
        return [event for event in salvage(path.read_bytes()) if _is_sound(event)]
    except OSError:
        return []


def _by_key(path: Path) -> dict[tuple[str, int], Event]:
    return {key_of(event): event for event in read_sound(path)}


def _frames(events: Iterable[Event]) -> bytes:
    return b"".join(frame([event]) for event in events)


def _is_sound(event: Any) -> bool:
    try:
        _check(event)
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def _check(event: Event) -> None:
    """That it is one, wherever it comes from.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    _file_name(event)
    key_of(event)
    time = event["time"]
    if type(time) not in (int, float) or not isfinite(time):
        raise ValueError("an event's time is a number")
    if not isinstance(event.get("kind", ""), str):
        raise ValueError("an event's kind is a text")


def key_of(event: Event) -> tuple[str, int]:
    origin, number = event["origin"], event["number"]
    if not isinstance(origin, str) or type(number) is not int or number < 1:
        raise ValueError("an event's origin is a text and its number a positive integer")
    return origin, number


def order_of(event: Event) -> tuple[float, str, int]:
    return (float(event["time"]), *key_of(event))


def _upto(vector: Mapping[str, int], event: Event) -> int:
    return vector.get(event["origin"], 0)


def _file_name(event: Event) -> str:
    job = event.get("job")
    if job is None:
        return _CLUSTER_FILE
    # A job's name comes from other nodes and becomes the name of a file.
    if not isinstance(job, str) or not is_job_id(job):
        raise ValueError(f"{str(job)[:80]!r} is no job")
    return job


def _clipped(value: Any) -> Any:
    match value:
        case str() if len(value) > CLIPPED_LETTERS:
            return "…" + value[-CLIPPED_LETTERS:]
        case dict():
            return {key: _clipped(item) for key, item in value.items()}
        case list() | tuple():
            return [_clipped(item) for item in value[-CLIPPED_ITEMS:]]
        case _:
            return value


def public(event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in ("origin", "number")}
