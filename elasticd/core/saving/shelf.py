"""The checkpoints that a leader looks after: the newest consistent one, and those on their way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.saving.checkpoint import Checkpoint, Key
from elasticd.types import NodeId, Point, Tag

_MAX_OPEN = 8
"""So many unfinished checkpoints at most are kept: newer ones are on their way."""


@dataclass(slots=True)
class Shelf:
    home: Checkpoint | None = None
    """The newest consistent checkpoint of the line that is trained."""
    open: dict[Key, Checkpoint] = field(default_factory=dict)
    """Those that are not consistent yet."""
    changed: bool = False
    """Another one became the newest since somebody looked."""

    @property
    def newest(self) -> Manifest | None:
        return self.home.manifest if self.home is not None else None

    def news(self) -> bool:
        """Whether another one became the newest since somebody asked."""
        changed, self.changed = self.changed, False
        return changed

    def all(self) -> Iterator[Checkpoint]:
        if self.home is not None:
            yield self.home
        yield from list(self.open.values())

    def over(self, step: int) -> bool:
        """There is nothing to be done for checkpoints of ``step``: a newer one is consistent."""
        return self.newest is not None and step <= self.newest.step

    def begin(self, key: Key, generation: Tag, now: float) -> Checkpoint:
        """One is on its way, or again, with nothing left of what was heard of it."""
        checkpoint = self.open[key] = Checkpoint(key, generation, now)
        return checkpoint

    def supersede(self, point: Point, generation: Tag) -> bool:
        """Before a world's word of a state counts that nobody has under this name: what earlier
        worlds have written of it, under another lineage or cut otherwise, counts no more if no
        manifest names it. False if a later world has written it."""
        name = (point.step, point.stamp)
        others = [
            one
            for one in self.open.values()
            if (one.step, one.stamp) == name and one.manifest is None
        ]
        if any(generation < one.generation for one in others):
            return False
        self.drop(lambda one: one in others and one.generation < generation)
        return True

    def doubt(self, odd: Collection[NodeId], generation: Tag) -> None:
        """What these have written in that world, or before, is not what the others have."""
        for key, checkpoint in self.open.items():
            said = checkpoint.said.words.keys() & odd
            if said and checkpoint.manifest is None and checkpoint.generation <= generation:
                self.open[key] = checkpoint.without(odd)

    def bound(self, newly: Key, worth: Callable[[Checkpoint], tuple[int, int]]) -> None:
        """Forget those that are too many, the least in ``worth`` first, and not the one that
        somebody has just spoken of."""
        others = [one for one in self.open.values() if one.key != newly]
        others.sort(key=lambda one: (worth(one), one.key))
        for one in others[: max(0, len(self.open) - _MAX_OPEN)]:
            del self.open[one.key]

    def drop(self, which: Callable[[Checkpoint], bool]) -> None:
        for checkpoint in [checkpoint for checkpoint in self.open.values() if which(checkpoint)]:
            del self.open[checkpoint.key]

    def promote(self, checkpoint: Checkpoint) -> None:
        """It is consistent, and the newest."""
        self.home, self.changed = checkpoint, True
        self.open.pop(checkpoint.key, None)

    def demote(self) -> None:
        """The newest is of no use any more."""
        self.home, self.changed = None, True

    def of_manifest(self, manifest: Manifest, now: float) -> Checkpoint | None:
        """The unfinished one that this is the manifest of; None if that has another one already."""
        key = Key.of(manifest)
        checkpoint = self.open.get(key)
        if checkpoint is not None and checkpoint.announced(manifest):
            return checkpoint
        if checkpoint is not None and checkpoint.manifest is not None:
            return None
        # What somebody wrote otherwise is nothing beside a manifest, of which a disk has all.
        others = checkpoint is not None
        checkpoint = self.begin(key, manifest.generation, now)
        checkpoint.take(manifest, disputed=others)
        return checkpoint

    def count_of(self, point: Point) -> int:
        """Into how many shards this state is cut where a manifest of it is on its way; 0: none."""
        known = (e.key for e in self.all() if e.manifest is not None)
        return max((key.count for key in known if key.point == point), default=0)
