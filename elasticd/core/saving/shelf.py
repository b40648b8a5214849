"""The checkpoints that a leader looks after: the newest consistent one, and those on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.saving.entries import Entry, Key
from elasticd.types import Point, Tag

_MAX_ENTRIES = 8
"""Older unfinished checkpoints are forgotten: newer ones are on their way."""


@dataclass(slots=True)
class Shelf:
    home: Entry | None = None
    """The newest consistent checkpoint of the line that is trained."""
    entries: dict[Key, Entry] = field(default_factory=dict)
    """Those that are not consistent yet."""
    changed: bool = False
    """Another one became the newest since somebody looked."""

    @property
    def newest(self) -> Manifest | None:
        return self.home.manifest if self.home is not None else None

    def all(self) -> Iterator[Entry]:
        if self.home is not None:
            yield self.home
        yield from list(self.entries.values())

    def over(self, step: int) -> bool:
        """There is nothing to be done for checkpoints of ``step``: a newer one is consistent."""
        return self.newest is not None and step <= self.newest.step

    def begin(self, key: Key, generation: Tag, now: float) -> Entry:
        """One is on its way, or again, with nothing left of what was heard of it."""
        entry = self.entries[key] = Entry(key, generation, now)
        return entry

    def bound(self) -> None:
        while len(self.entries) > _MAX_ENTRIES:
            del self.entries[min(self.entries, key=lambda key: (key.step, key))]

    def drop(self, which: Callable[[Entry], bool]) -> None:
        for entry in [entry for entry in self.entries.values() if which(entry)]:
            del self.entries[entry.key]

    def promote(self, entry: Entry) -> None:
        """It is consistent; what is older need not become so."""
        self.home, self.changed = entry, True
        self.drop(lambda old: old.step <= entry.step)

    def demote(self) -> None:
        """The newest is of no use any more."""
        self.home, self.changed = None, True

    def of_manifest(self, manifest: Manifest, now: float) -> Entry | None:
        """The unfinished one that this is the manifest of; None if other shards are known of it."""
        key = Key.of(manifest)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.begin(key, manifest.generation, now)
            entry.said.digest = manifest.digest
        return entry if entry.announced(manifest) else None

    def count_of(self, point: Point) -> int:
        """Into how many shards this state is cut where a manifest of it is on its way; 0: none."""
        known = (e.key for e in self.all() if e.manifest is not None)
        return max((key.count for key in known if key.point == point), default=0)
