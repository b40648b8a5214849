"""What of the events another node lacks, in batches: it asks again behind every few of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from elasticd.shell.storage.eventfloors import EventFloors, told
from elasticd.shell.storage.eventform import Event, Key
from elasticd.shell.storage.keptevents import KeptEvents
from elasticd.shell.storage.seen import SeenNumbers

BATCH_EVENTS = 200
_READ_AT_ONCE = 32
_READ_EVENTS = 5000
"""Files, and events of them, that are kept in memory while another node is sent what it lacks; one
file at least."""


@dataclass(frozen=True, slots=True)
class _FilesRead:
    """What was read of some files. The disk may be behind, so who reads waits for what is being
    written only where something is missing."""

    kept: KeptEvents
    events: dict[str, dict[Key, Event]] = field(default_factory=dict)
    settled: dict[str, bytes] = field(default_factory=dict)
    """Files that were read when all was written, with what lay on the shelf before."""

    async def event(self, name: str, key: Key) -> Event | None:
        if name not in self.events:
            if len(self.events) >= _READ_AT_ONCE or self._count() >= _READ_EVENTS:
                self.events.clear()
                self.settled.clear()
            self.events[name] = await self.kept.read(name, settled=False)
        shelf = self.kept.shelf(name)  # another one as soon as more is put away
        if key not in self.events[name] and self.settled.get(name) is not shelf:
            self.events[name] = await self.kept.read(name, settled=True)
            self.settled[name] = shelf
        return self.events[name].get(key)

    def _count(self) -> int:
        return sum(map(len, self.events.values()))


@dataclass(frozen=True, slots=True)
class LackingEvents:
    """Files are read in a thread."""

    kept: KeptEvents
    progress: SeenNumbers
    floors: EventFloors

    async def batches(
        self, vector: Mapping[str, int], after: tuple[str, int]
    ) -> AsyncIterator[list[Event]]:
        """What a node with that vector lacks, in the order of origins and numbers. ``after``: the
        origin and number of the last one that it has been sent."""
        batch: list[Event] = []
        read = _FilesRead(self.kept)
        async for origin, first, last, name in self._segments(vector, after[0]):
            for number in range(first, last + 1):
                key = origin, number
                if key <= after:
                    continue
                event = self.kept.event(name, key)
                if event is None:
                    event = await read.event(name, key)
                if event is not None:
                    batch.append(event)
                if len(batch) == BATCH_EVENTS:
                    yield batch
                    batch = []
        # What we dropped it won't get; last, since a floor makes it refuse what is below.
        if floors := self.floors.lacking(vector):
            batch += told(floors, await self.kept.origins())
        self.kept.shelved.rest()
        for start in range(0, len(batch), BATCH_EVENTS):
            yield batch[start : start + BATCH_EVENTS]

    async def _segments(
        self, vector: Mapping[str, int], since: str
    ) -> AsyncIterator[tuple[str, int, int, str]]:
        """Which numbers of which origins, from ``since`` on, there are that the vector lacks, in
        order: from, to, in which file."""
        live: dict[str, list[tuple[int, int, str]]] = {}
        for name, keys in self.kept.in_memory():
            for origin, number in keys:
                if number > vector.get(origin, 0) and origin >= since:
                    live.setdefault(origin, []).append((number, number, name))
        for origin in self.progress.origins():
            upto, highest = vector.get(origin, 0), self.progress.highest(origin)
            if origin < since or highest <= upto:
                continue
            found = live.get(origin, [])
            if len(found) < highest - upto:
                found = found + await asyncio.to_thread(self.kept.shelved.of, origin)
            for first, last, name in sorted(found):
                # What was put away meanwhile is found in both.
                if last > upto:
                    yield origin, max(first, upto + 1), last, name
                    upto = last
