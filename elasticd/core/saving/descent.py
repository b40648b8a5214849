"""The line that is trained: only the states that it went through are worth a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.checkpoints import choose
from elasticd.checkpoints.choose import Choice
from elasticd.checkpoints.line import descends
from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.records import World
from elasticd.recovery.lineages import Left, ancestry, is_left, merged
from elasticd.types import Lineage, NodeId, Point, Tag

Reports = Mapping[NodeId, tuple[Stored, ...]]
"""What each node says that it has of finished checkpoints."""


_WORLDS = 8


@dataclass(slots=True)
class Descent:
    """Of one job, as far as its leader knows."""

    world: World | None = None
    parents: dict[Lineage, Point | None] = field(default_factory=dict)
    """Where lineages were opened."""
    stayed: dict[Tag, frozenset[NodeId]] = field(default_factory=dict)
    """Of the newest worlds, the members that have kept their state ever since."""
    spoilt: Left = ()
    """What was written of states that differ, since all agreed."""

    def enter(self, world: World) -> None:
        """A world was formed or adopted. If it goes on with what is spoilt, there was nothing
        else."""
        self.world = world
        self.parents.setdefault(world.lineage, world.parent)
        self.spoilt = self._aside(merged(self.spoilt, world.spoilt))
        self._stay(world)

    def recall(self, spoilt: Left) -> bool:
        """Others know of what is spoilt; whether that is news. What our world goes on with it does
        for good."""
        before, self.spoilt = self.spoilt, merged(self.spoilt, self._aside(spoilt))
        return self.spoilt != before

    def _aside(self, spoilt: Left) -> Left:
        """What of it the present world has not gone through, as far as is known."""
        world = self.world
        if world is None or not spoilt:
            return spoilt
        line = ancestry(Point(world.lineage, world.step, world.stamp), self.parents.get)
        return tuple(
            (lineage, after)
            for lineage, after in spoilt
            if lineage != world.lineage and line.get(lineage, -1) <= after
        )

    def _stay(self, world: World) -> None:
        keep = frozenset(world.members) - frozenset(world.takers)
        earlier = [tag for tag in self.stayed if tag < world.generation][-_WORLDS:]
        self.stayed = {tag: self.stayed[tag] & keep for tag in earlier}
        self.stayed[world.generation] = frozenset(world.members)

    def forget_world(self) -> None:
        """It is not known which one trains, or will."""
        self.world = None

    def agreed(self, known: Iterable[Point], before: int, of: World | None = None) -> Point | None:
        """The newest of these states that the present world, or another one that is ``of`` interest
        instead, went through before that step. All of its members are alike where it started from
        what one of them, or disks, had."""
        world, points = self._known(of), list(known)
        if world is not None and world.rung in ("start", "restore"):
            points.append(Point(world.lineage, world.step, world.stamp))
        points = [p for p in points if p.step < before and self.has(p, world)]
        return max(points, key=lambda p: p.step, default=None)

    def _known(self, of: World | None) -> World | None:
        """A world of which it is known where its lineage was opened."""
        if of is not None:
            self.parents.setdefault(of.lineage, of.parent)
        return of or self.world

    def after(self, point: Point, of: World | None = None) -> Left:
        """What the world went through after ``point``; ``of`` as for :meth:`agreed`."""
        world = self._known(of)
        lineage = point.lineage if world is None else world.lineage
        passed: set[Lineage] = set()
        while lineage != point.lineage and lineage not in passed:
            passed.add(lineage)
            origin = self.parents.get(lineage)
            lineage = point.lineage if origin is None else origin.lineage
        return (*((name, -1) for name in sorted(passed)), (point.lineage, point.step))

    def spoil(self, point: Point, of: World | None = None) -> None:
        """Nothing counts of what came after ``point``; ``of`` as for :meth:`agreed`."""
        self.spoilt = merged(self.spoilt, self.after(point, of))

    def is_spoilt(self, lineage: Lineage, step: int) -> bool:
        return is_left(self.spoilt, lineage, step)

    def is_of_spoilt(self, world: World) -> bool:
        """Whether all that the world has made since it began is spoilt."""
        parent = world.parent
        came = parent is not None and self.is_spoilt(parent.lineage, parent.step)
        return came or world.lineage in dict(self.spoilt)

    def ends_at(self, steps: int) -> int:
        """The last step, in a job of so many."""
        return steps if self.world is None else self.world.ends_at(steps)

    def stops_at(self, step: int) -> bool:
        """Whether the script has asked to stop after that step."""
        return self.world is not None and self.world.last == step

    def has(self, point: Point, of: World | None = None) -> bool:
        """Whether the world went through this state, as far as is known; ``of`` as for
        :meth:`agreed`."""
        world = self._known(of)
        return world is None or descends(world.lineage, point, self.parents)

    def newest(self, reports: Reports, of: World | None = None) -> Choice | None:
        """The newest checkpoint of this line of which the reports have every shard; ``of`` as for
        :meth:`agreed`."""
        world = self._known(of)
        if world is None:
            return choose.newest(reports)
        return choose.newest(reports, world.lineage, world.parent)
