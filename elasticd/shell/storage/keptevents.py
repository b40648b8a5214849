"""Where the events are: all on the disk, and the newest in memory as well.

Of those that lie on the disk only, memory has which numbers of which origins they are: that is what
other nodes are to be told. It doesn't matter whether a job has ended. Another node may tell of
years at once, and of a job's end last; so there is a bound for all jobs together, and what came
longest ago is put away first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import structlog

from elasticd.shell.storage import eventform, eventshelf
from elasticd.shell.storage.eventfiles import EventFiles
from elasticd.shell.storage.eventform import (
    CLUSTER_FILE,
    LAST_EVENTS,
    Event,
    Key,
    file_name,
    key_of,
    order_of,
    outliving,
)
from elasticd.shell.storage.eventlasting import LastingEvents, lasting

KEPT_EVENTS = 20_000
"""Of each job, and of the cluster, besides those that last; a tenth more before the oldest are
dropped."""
MEMORY_BYTES = 4 << 20
"""Of events in memory, as long as they are on the disk; there they take about five times that."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _InMemory:
    """Of one file."""

    events: dict[Key, Event] = field(default_factory=dict)
    size_bytes: int = 0


class KeptEvents:
    """By the file that has them: a job's, or the cluster's. Runs in the event loop's thread."""

    def __init__(self, files: EventFiles, dropped: Callable[[Iterable[Event]], None]) -> None:
        """``dropped`` is told of events that are here no more."""
        self._files, self._dropped = files, dropped
        self._memory: dict[str, _InMemory] = {}
        """The one of which something came last is the last."""
        self._memory_bytes = 0
        self._shelves: dict[str, bytes] = {}
        """Which events lie on the disk only, packed."""
        self.shelved = eventshelf.Segments(self._shelves)
        self._ended: dict[str, float] = {}
        self._lasting = LastingEvents(self._ended)
        self._trimming: set[str] = set()
        """Their files are being read: there is too much in them."""
        self._unread: set[str] = set()
        """Of those that could not be read the last time."""

    def add(self, event: Event, size_bytes: int) -> None:
        """One that is in its file, or about to be, where it takes so much."""
        name = file_name(event)
        kept = self._memory.pop(name, None) or _InMemory()
        self._memory[name] = kept
        kept.events[key_of(event)] = event
        kept.size_bytes += size_bytes
        self._memory_bytes += size_bytes
        if name != CLUSTER_FILE:
            on_disk = name in self._shelves
            self._lasting.add(name, event, on_disk)
            if event.get("kind") in LAST_EVENTS:
                self._ended[name] = max(event["time"], self._ended.get(name, 0.0))
                self._lasting.again(name, None if on_disk else kept.events.values())

    def bound(self, name: str) -> None:
        """Drop the oldest of that file if there are too many, and put away what is too much for
        memory."""
        if name in self._memory and _too_many(len(self._memory[name].events)):
            self._trim(name)
        for each in self.put_much_away():
            self._trim(each)

    def put_much_away(self) -> list[str]:
        """What is too much for memory; returns the files that have too many events."""
        large = []
        if self._memory_bytes > MEMORY_BYTES:
            for name in [each for each in self._memory if each not in self._trimming]:
                if self._memory_bytes <= MEMORY_BYTES // 2:
                    break
                if _too_many(self.put_away(name)):
                    large.append(name)
        return large

    def shelve(self, shelves: Mapping[str, eventshelf.ShelvedEvents]) -> None:
        """These lie on the disk, as was noted before this daemon began."""
        self._shelves.update((name, shelf.packed) for name, shelf in shelves.items())
        self._ended.update((name, shelf.ended) for name, shelf in shelves.items())

    def put_away(self, name: str) -> int:
        """Have no event of that file in memory; returns how many it has."""
        kept = self._memory.pop(name)
        self._memory_bytes -= kept.size_bytes
        before = self._shelves.get(name)
        if before is None:
            self._lasting.put_away(name)
        ranges = eventshelf.ranges_of(kept.events, before)
        self._shelve(name, ranges)
        return eventshelf.count(ranges)

    def _shelve(self, name: str, ranges: eventshelf.Ranges) -> None:
        self._shelves[name] = eventshelf.packed(ranges)
        self.shelved.changed(name)

    def shelf(self, name: str) -> bytes:
        """Which events of that file lie on the disk only, packed; empty: none."""
        return self._shelves.get(name, b"")

    def runs(self, job: str | None) -> Iterator[list[Event] | Path]:
        """What there is now, of a job or (None) of all: events in memory, or the file with them.
        The paths are made one by one: of years there are many, and most are looked at once."""
        names = {*self._memory, *self._shelves} if job is None else {job}
        shelved = names.intersection(self._shelves)
        live = [
            [*self._memory[name].events.values()]
            for name in names.difference(shelved).intersection(self._memory)
        ]
        return chain(live, map(self._files.path, sorted(shelved)))

    def in_memory(self) -> Iterable[tuple[str, Iterable[Key]]]:
        """Per file which events there are."""
        return ((name, kept.events) for name, kept in self._memory.items())

    def event(self, name: str, key: Key) -> Event | None:
        """One that is in memory."""
        kept = self._memory.get(name)
        return None if kept is None else kept.events.get(key)

    async def read(self, name: str, settled: bool) -> dict[Key, Event]:
        """Those on the disk; ``settled``: with all that is being written."""
        if settled:
            found = await asyncio.to_thread(self._files.read_now, name, eventform.read_sound)
        else:
            found = await asyncio.to_thread(eventform.read_sound, self._files.path(name))
        return eventform.by_key(found)

    async def origins(self) -> set[str]:
        """Those of which there are events."""
        live = {origin for kept in self._memory.values() for origin, _ in kept.events}
        return live | await asyncio.to_thread(self.shelved.origins) if self._shelves else live

    def lasting(self, job: str) -> list[Event] | None:
        """Those of a job that last, in the order of time. None: they lie on the disk."""
        return self._lasting.of(job, job in self._shelves)

    def lasting_read(self, job: str) -> Callable[[list[Event]], None]:
        """To be told which those are, once they have been read from the disk: as long as nothing
        has come meanwhile they are at hand from then on."""
        missed = self._lasting.missed

        def found(events: list[Event]) -> None:
            if job in self._shelves:
                self._lasting.put_back(job, missed, events)

        return found

    def ended(self, name: str) -> float | None:
        """When the job ended; None: nothing is known of that."""
        return self._ended.get(name)

    def has(self, name: str) -> bool:
        return name in self._memory or name in self._shelves

    def remove(self, job: str) -> dict[str, int]:
        """All of the job; returns per origin the number of the last event that was removed."""
        kept = self._memory.pop(job, None) or _InMemory()
        self._memory_bytes -= kept.size_bytes
        ranges = eventshelf.ranges_of(kept.events, self._shelves.pop(job, None))
        self._trimming.discard(job)
        self._unread.discard(job)
        self._lasting.drop(job)
        self._ended.pop(job, None)
        self._files.remove(job)
        return {origin: held[-1][1] for origin, held in ranges.items()}

    # --- dropping ---------------------------------------------------------------------------------

    def _trim(self, name: str) -> None:
        """Keep the newest, at once or when what lies on the disk was read."""
        if name not in self._shelves:
            self._drop_oldest(name, {})
        elif name not in self._trimming:
            self._trimming.add(name)
            self._files.read(name, _all_in, partial(self._read_to_trim, name))

    def _read_to_trim(self, name: str, found: Mapping[Key, Event] | OSError) -> None:
        if name not in self._trimming:
            return  # it was forgotten meanwhile
        self._trimming.discard(name)
        if not isinstance(found, OSError):
            self._unread.discard(name)
            self._drop_oldest(name, found)
        elif name not in self._unread:  # it is tried again when more is put away
            self._unread.add(name)
            path, reason = str(self._files.path(name)), str(found)
            log.warning("old events stay: their file can't be read", path=path, reason=reason)

    def _drop_oldest(self, name: str, on_disk: Mapping[Key, Event]) -> None:
        """Writes the file anew, and so only if all that stays is at hand: a damaged one may have
        given less than it was to have."""
        memory = self._memory.get(name) or _InMemory()
        events = sorted({**on_disk, **memory.events}.values(), key=order_of)
        stay = set(map(key_of, lasting(events)))
        old = events[:-KEPT_EVENTS]
        dropped = [each for each in old if key_of(each) not in stay]
        if not dropped:
            return
        kept = [outliving(each) for each in old if key_of(each) in stay] + events[-KEPT_EVENTS:]
        self._memory.pop(name, None)
        self._memory_bytes -= memory.size_bytes
        self._dropped(dropped)
        if name in self._shelves:
            self._shelve(name, eventshelf.ranges_of(map(key_of, kept)))
        else:
            share = memory.size_bytes * len(kept) // len(events)
            self._memory[name] = _InMemory({key_of(event): event for event in kept}, share)
            self._memory_bytes += share
        self._files.rewrite(name, lambda: eventform.frames(kept))


def _all_in(path: Path) -> dict[Key, Event] | OSError:
    try:
        return eventform.by_key(eventform.sound_in(path))
    except OSError as error:
        return error


def _too_many(events: int) -> bool:
    return events > KEPT_EVENTS + KEPT_EVENTS // 10
