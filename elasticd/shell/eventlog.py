"""The history of what happened, replicated to every node.

An event belongs to an origin (one run of one daemon) and has a number there, from 1 without gaps. Nodes tell one another up to
which number they have each origin's events and send what is missing; so any living daemon has the whole history, whoever
wrote it and died since. On disk: one append-only msgpack file for each job, and one for the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack

from elasticd.types import JobId

KEPT_EVENTS = 20_000
"""Of each job; older ones are dropped when the daemon starts."""
BATCH_EVENTS = 200
_CLUSTER_FILE = "cluster"

Event = dict[str, Any]


class EventLog:
    """All events that this node knows. Runs in the event loop's thread."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._folder = folder
        self._origin = origin
        self._numbers = 0
        self._events: dict[tuple[str, int], Event] = {}
        self._complete: dict[str, int] = {}
        self._grown = asyncio.Event()
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.msgpack")):
            self._read(path)

    def write(self, event: Event) -> Event:
        """Number and keep an event of our own; returns it as the other nodes must get it."""
        self._numbers += 1
        event = {**event, "origin": self._origin, "number": self._numbers}
        self.add(event)
        return event

    def add(self, event: Event) -> bool:
        """Keep an event; False if it was known. Malformed ones raise KeyError or TypeError."""
        key = (str(event["origin"]), int(event["number"]))
        if key in self._events:
            return False
        self._remember(key, event)
        with self._path(event.get("job")).open("ab") as file:
            file.write(msgpack.packb(event))
        self._grown.set()
        self._grown = asyncio.Event()
        return True

    def vector(self) -> dict[str, int]:
        """Per origin the number up to which nothing is missing here."""
        return dict(self._complete)

    def missing(self, vector: Mapping[str, int]) -> Iterator[list[Event]]:
        """Batches of what a node with that vector lacks."""
        keys = [key for key in self._events if key[1] > vector.get(key[0], 0)]
        keys.sort()
        for start in range(0, len(keys), BATCH_EVENTS):
            yield [self._events[key] for key in keys[start : start + BATCH_EVENTS]]

    def history(self, job: JobId | None) -> list[Event]:
        """What happened to a job, or (None) everything, in the order of time."""
        chosen = [e for e in self._events.values() if job is None or e.get("job") in (job, None)]
        if job is not None:
            chosen = [e for e in chosen if e.get("job") == job]
        return [_public(event) for event in sorted(chosen, key=_order)]

    async def follow(self, job: JobId | None) -> AsyncIterator[Event]:
        """The history, then what comes, for ever."""
        shown: set[tuple[str, int]] = set()
        while True:
            grown = self._grown
            fresh = [
                event
                for key, event in self._events.items()
                if key not in shown and (job is None or event.get("job") == job)
            ]
            for event in sorted(fresh, key=_order):
                shown.add((event["origin"], event["number"]))
                yield _public(event)
            await grown.wait()

    def _remember(self, key: tuple[str, int], event: Event) -> None:
        self._events[key] = event
        origin, _ = key
        while (origin, self._complete.get(origin, 0) + 1) in self._events:
            self._complete[origin] = self._complete.get(origin, 0) + 1

    def _path(self, job: str | None) -> Path:
        return self._folder / f"{job or _CLUSTER_FILE}.msgpack"

    def _read(self, path: Path) -> None:
        events: list[Event] = []
        with path.open("rb") as file:
            unpacker = msgpack.Unpacker(file, raw=False)
            try:
                events.extend(item for item in unpacker if isinstance(item, dict))
            except (ValueError, msgpack.UnpackException):
                events = events[:]  # a torn tail: what came before it counts
        for event in events[-KEPT_EVENTS:]:
            if "origin" in event and "number" in event:
                self._remember((event["origin"], event["number"]), event)


def _order(event: Event) -> tuple[float, str, int]:
    return event["time"], event["origin"], event["number"]


def _public(event: Event) -> Event:
    return {key: value for key, value in event.items() if key not in ("origin", "number")}
