"""Invariants 1 to 4 of one job: what went into its steps, which of them count, and that one side at
most trains. Each says in a sentence what must not be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from elasticd.core.words.records import View, World
from elasticd.types import Lineage, Point, Stamp, Tag, next_stamp


@dataclass(frozen=True, slots=True)
class Reduction:
    """One step as it was reduced: by whom is in the world."""

    parent: Stamp
    step: int
    lineage: Lineage
    generation: str


@dataclass(slots=True)
class Ledger:
    """Invariants 1 and 2: what went into every reduction."""

    reductions: dict[Stamp, Reduction] = field(default_factory=dict)

    def reduced(
        self,
        world: World,
        grains: int,
        step: int,
        parts: Mapping[int, tuple[Point, frozenset[int]]],
    ) -> str:
        """Why this reduction must not be, or nothing."""
        points = {point for point, _ in parts.values()}
        if len(points) != 1 or len(parts) != len(world.members):
            return (
                f"step {step} is reduced from {len(points)} states by {len(parts)} ranks: {points}"
            )
        (point,) = points
        if point.step != step - 1 or point.lineage != world.lineage:
            return f"step {step} of lineage {world.lineage} is reduced from {point}"
        used = sorted(grain for _, share in parts.values() for grain in share)
        if used != list(range(grains)):
            return f"step {step} uses grains {used} of {grains}"
        stamp = next_stamp(point.stamp, world.generation, step)
        if stamp in self.reductions:
            return f"step {step} is reduced twice in generation {world.generation}"
        self.reductions[stamp] = Reduction(point.stamp, step, world.lineage, str(world.generation))
        return ""

    def steps_to(self, stamp: Stamp) -> list[int]:
        """The steps that led to a state, oldest first."""
        steps = []
        while stamp in self.reductions:
            reduction = self.reductions[stamp]
            steps.append(reduction.step)
            stamp = reduction.parent
        return steps[::-1]


@dataclass(slots=True)
class Commits:
    """Invariant 3: the committed steps of every lineage."""

    stamps: dict[tuple[Lineage, int], Stamp] = field(default_factory=dict)
    newest: dict[Lineage, int] = field(default_factory=dict)
    times: list[tuple[float, int]] = field(default_factory=list)

    def committed(self, now: float, point: Point) -> str:
        known = self.stamps.setdefault((point.lineage, point.step), point.stamp)
        if known != point.stamp:
            return f"step {point.step} of lineage {point.lineage} is committed twice, differently"
        if point.step > self.newest.get(point.lineage, -1):
            self.newest[point.lineage] = point.step
            self.times.append((now, point.step))
        return ""

    def resumed(self, world: World, point: Point) -> str:
        """All members of a world, not only its leader, are at ``point``."""
        newest = self.newest.get(point.lineage, -1)
        if point.step < newest:
            return (
                f"generation {world.generation} is at step {point.step} of lineage "
                f"{point.lineage}, but step {newest} of it is committed"
            )
        return ""


@dataclass(slots=True)
class OneSide:
    """Invariant 4: with ``partition = "strict"`` no world trains once a later one does, no lineage
    once another has taken its place of which something is left, and primary views are one chain,
    each with a majority of the one before."""

    training: World | None = None
    over: set[Lineage] = field(default_factory=set)
    primary: View | None = None
    heard: set[Tag] = field(default_factory=set)
    """Every primary view that somebody took up."""

    def reduced(self, world: World, stored: Collection[Lineage]) -> str:
        """``stored`` are the lineages of which living nodes have checkpoints."""
        last = self.training
        if last is not None and world.generation < last.generation:
            return f"{world.generation} trains although {last.generation} does"
        if self.is_over(world.lineage, stored) and last is not None:
            return f"lineage {world.lineage} trains again after {last.lineage}"
        if last is not None and world.lineage != last.lineage:
            self.over.add(last.lineage)
            self.over.discard(world.lineage)
        self.training = world
        return ""

    def is_over(self, lineage: Lineage, stored: Collection[Lineage]) -> bool:
        """Whether another has taken its place, of which something is left."""
        last = self.training
        return lineage in self.over and last is not None and last.lineage in stored

    def formed(self, view: View) -> str:
        """A node took up a primary view."""
        last, heard = self.primary, view.epoch in self.heard
        self.heard.add(view.epoch)
        if last is None or view.epoch == last.epoch:
            self.primary = view
            return ""
        if view.epoch < last.epoch:
            # It hears late of what others have left, and trains in no older world; or all are there
            # who took up the last one, and crashed before they had it on disk.
            if heard or set(last.members) <= set(view.members):
                return ""
            return f"view {view} is primary with nobody who knows of {last}"
        # Who left on purpose voted for it, and journalled so (agreement.Views).
        there = [node for node in last.members if node in (*view.members, *view.voters)]
        half = 2 * len(there) == len(last.members) and last.members[0] in there
        if 2 * len(there) <= len(last.members) and not half:
            return f"view {view} is primary with {there} of {last}"
        self.primary = view
        return ""
