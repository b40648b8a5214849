"""Up to which number nobody has to send a node an origin's events, since it has dropped some.

Without that a peer that has them yet would send them at each meeting, with all that are behind. A
floor counts only while there are other events of that origin: behind nothing there is nothing to be
sent. So those go that are about nothing, and there are never more of them than origins that events
tell of, however often daemons were restarted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from elasticd.shell.storage.eventfiles import EventFiles
from elasticd.shell.storage.journal import frame, salvage
from elasticd.shell.storage.seen import SeenNumbers

FLOORS_FILE = "_floors"
FLOOR = "_floor"
"""The kind of event by which a node tells of one."""


class EventFloors:
    """Runs in the event loop's thread, but for what is written."""

    def __init__(self, files: EventFiles, progress: SeenNumbers) -> None:
        self._files, self._progress = files, progress
        self._floors: dict[str, int] = {}
        self._waits = False
        """They are to be written: many may change before they are."""

    def read(self) -> None:
        """Those of origins of which events were seen on the disk.

        Raises:
            OSError: the file can't be read.
        """
        kept = _read(self._files.path(FLOORS_FILE))
        self._floors = {o: number for o, number in kept.items() if self._progress.knows(o)}
        for origin, number in self._floors.items():
            self._progress.raise_floor(origin, number)
        if len(self._floors) < len(kept):
            self._write()

    def dropped(self, last: Iterable[tuple[str, int]]) -> None:
        """Of each origin events up to that number are here no more."""
        raised = dict(self._floors)
        for origin, number in last:
            # Those that were not seen yet may come.
            floor = min(number, self._progress.upto(origin))
            raised[origin] = max(floor, raised.get(origin, 0))
        if raised != self._floors:
            self._floors = raised
            self._write()

    def take(self, origin: str, number: int) -> bool:
        """Another node has dropped some; False if that is known."""
        if number <= self._progress.upto(origin):
            return False
        self._progress.raise_floor(origin, number)
        self._floors[origin] = self._progress.upto(origin)
        self._write()
        return True

    def lacking(self, vector: Mapping[str, int]) -> dict[str, int]:
        """Those that a node with that vector has not heard of."""
        return {
            origin: number
            for origin, number in sorted(self._floors.items())
            if number > vector.get(origin, 0)
        }

    def _write(self) -> None:
        if not self._waits:
            self._waits = True
            self._files.replace(FLOORS_FILE, self._content)

    def _content(self) -> bytes:
        """In the disk's thread. What changes after the first line is written once more."""
        self._waits = False
        return frame([dict(self._floors)])


def told(floors: Mapping[str, int], origins: Collection[str]) -> list[dict[str, Any]]:
    """As events, of these origins."""
    return [
        {"origin": origin, "number": number, "kind": FLOOR}
        for origin, number in floors.items()
        if origin in origins
    ]


def _read(path: Path) -> dict[str, int]:
    found = salvage(path.read_bytes()) if path.exists() else []
    return dict(found[-1]) if found else {}
