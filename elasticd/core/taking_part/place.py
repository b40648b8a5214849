"""A trainer's place in a world: made when the leader forms it, dropped when it is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from elasticd.core.engines.port import MemberEngine
from elasticd.core.taking_part.trainers import Trainer
from elasticd.core.words.records import Wanted, World
from elasticd.core.words.worlds import Ready
from elasticd.types import NodeId, Point, Tag


@dataclass(slots=True)
class Place:
    world: World
    rank: int
    trainer: Trainer
    engine: MemberEngine | None
    """None in a world of one."""
    has_state: bool
    formed: bool = False
    """The leader has said that all members are ready."""
    settled: bool = False
    """A step is committed in this world: spares may take the processor from training now."""

    @property
    def generation(self) -> Tag:
        return self.world.generation

    @property
    def in_ring(self) -> bool:
        return self.engine is None or self.engine.up

    @property
    def complete(self) -> bool:
        """Reducer in the ring, trainer in the world's state."""
        return self.in_ring and self.has_state

    def tell_if_ready(self, tell: Callable[[Ready], None]) -> None:
        if self.complete:
            tell(Ready(self.world.job, self.generation))

    @property
    def reducer(self) -> int | None:
        """The process that does the collectives."""
        return self.engine.child if self.engine is not None else None

    @property
    def ring_deadline(self) -> float:
        return self.engine.deadline if self.engine is not None and not self.in_ring else inf

    def takes_from(self, held: Point | None) -> Wanted | None:
        """Where the state is that the trainer lacks, which holds ``held``; None: in the world's
        checkpoint."""
        world = self.world
        kind, _, holder = world.sources[self.rank].partition(":")
        if kind == "checkpoint":
            return None
        point = Point(world.lineage, world.step, world.stamp)
        if kind == "updates":
            return Wanted(point, (NodeId(holder),), held)
        named = world.members.index(NodeId(holder))
        order = [*range(named, len(world.members)), *range(named)]
        keep = [world.members[r] for r in order if r == named or world.sources[r] == "keep"]
        return Wanted(point, tuple(keep))
