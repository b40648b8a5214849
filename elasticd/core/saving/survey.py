"""What is known of a job's states by their checkpoints: a leader's questions.

Answered from what members said that their disks have, and what writers have told of checkpoints
that are not consistent yet. Pure: nobody is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.checkpoints import choose
from elasticd.checkpoints.line import descends
from elasticd.checkpoints.manifest import Manifest
from elasticd.core.saving.checkpoint import Checkpoint
from elasticd.core.saving.descent import Descent, Reports
from elasticd.core.saving.replicas import Replicas
from elasticd.core.saving.shelf import Shelf
from elasticd.core.words.records import World
from elasticd.recovery.lineages import is_left, remaining
from elasticd.types import Lineage, NodeId, Point, Tag


@dataclass(slots=True)
class Survey:
    """Of one job, on the nodes of a view."""

    descent: Descent
    shelf: Shelf
    replicas: Replicas
    reports: Reports = field(default_factory=dict)
    """What every member of the view said that it has; empty until all have spoken."""

    def hear(self, reports: Reports) -> None:
        """What all members have of finished checkpoints now."""
        self.reports = reports

    def lineages(self) -> frozenset[Lineage]:
        """Those of which a checkpoint is known, be it an unfinished one."""
        return frozenset(checkpoint.lineage for checkpoint in self.shelf.all())

    @property
    def manifests(self) -> list[Manifest]:
        """Those that members have; one that two of them have is there twice."""
        return [item.manifest for items in self.reports.values() for item in items]

    def cut_of(self, point: Point) -> int:
        """Into how many shards this very state was cut where a disk has it already, perhaps without
        all of its shards; 0: nowhere.

        A disk takes one cut of a state, so that a world which writes the state again has to cut it
        in the same way.
        """
        on_disks = [manifest.count for manifest in self.manifests if manifest.point == point]
        # Word of a manifest may still be on its way to a disk.
        return max([self.shelf.count_of(point), *on_disks])

    def disputed(self, step: int) -> bool:
        """Whether a disk has a part of the state after ``step`` that nobody can complete: all
        members of the world have written theirs, which is another."""
        found = [e for e in self.shelf.open.values() if e.step == step and e.disputed]
        return any(not e.complete and not self.replicas.writing(e) for e in found)

    def lost(self, step: int) -> bool:
        """Whether nobody has a shard of the state after ``step`` any more, though it was written:
        only those who hold the state can write it again."""
        found = [e for e in self.shelf.open.values() if e.step == step and e.lost]
        return any(not e.complete and not self.replicas.writing(e) for e in found)

    def barred(self, generation: Tag) -> Point | None:
        """The state that the world has written in vain: disks have a part of another one under its
        name, which nobody can complete."""
        found = [e for e in self.shelf.open.values() if e.lost and e.disputed and not e.complete]
        return next((e.key.point for e in found if e.generation == generation), None)

    def covers(self, point: Point, parent: Point | None) -> bool:
        """Whether this state's checkpoint is made, or will be without anybody writing it again: one
        that counts in the lineage of ``point``, which was opened after ``parent``."""
        parents = {**self.descent.parents, point.lineage: parent}

        def is_it(other: Point) -> bool:
            same = (other.step, other.stamp) == (point.step, point.stamp)
            return same and descends(point.lineage, other, parents)

        newest = self.shelf.newest
        if newest is not None and is_it(newest.point):
            return True
        kept = {
            node: [item for item in items if is_it(item.manifest.point)]
            for node, items in self.reports.items()
        }
        if choose.newest(kept) is not None:
            return True
        same = [e for e in self.shelf.open.values() if is_it(e.key.point)]
        return any(e.manifest is not None and e.complete for e in same)

    def agreed(self, known: Point | None, before: int, of: World | None = None) -> Point | None:
        """The newest state before a step that all members had alike, on this line or on that ``of``
        another world: what is ``known``, or a checkpoint."""
        newest = [] if self.shelf.newest is None else [self.shelf.newest]
        alike = [manifest.point for manifest in (*self.manifests, *newest) if manifest.agreed]
        return self.descent.agreed([*alike, known] if known is not None else alike, before, of)

    def reaches(self, point: Point, of: World | None = None) -> bool:
        """Whether there is a checkpoint of ``point``, or of its line before it."""
        newest, after = self.shelf.newest, self.descent.after(point, of)
        if of is None and newest is not None and not is_left(after, newest.lineage, newest.step):
            return True
        return self.descent.newest(remaining(self.reports, after), of) is not None

    def contested(self, step: int = -1) -> Checkpoint | None:
        """One of the state after ``step``, or of any (-1), on which its writers differ, be it that
        the word of some doesn't count, and nobody else will have a say."""
        found = [e for e in self.shelf.open.values() if step in (-1, e.step) and e.said.differs]
        return next((e for e in found if not e.complete and not self.replicas.writing(e)), None)

    def difference(self) -> tuple[str, tuple[NodeId, NodeId]] | None:
        """The first tensor that two writers have otherwise in the newest state on which some
        differ, and who they are, as far as they have said enough."""
        for checkpoint in sorted(self.shelf.open.values(), key=lambda e: (-e.step, e.key)):
            if (found := checkpoint.said.difference(checkpoint.key.count)) is not None:
                return found
        return None
