"""The line that is trained: only the states that it went through are worth a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.checkpoints import choose
from elasticd.checkpoints.choose import Choice
from elasticd.checkpoints.line import descends
from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.records import World
from elasticd.recovery.lineages import Left, is_left, merged
from elasticd.types import Lineage, NodeId, Point

Reports = Mapping[NodeId, tuple[Stored, ...]]
"""What each node says that it has of finished checkpoints."""


@dataclass(slots=True)
class Descent:
    """Of one job, as far as its leader knows."""

    world: World | None = None
    parents: dict[Lineage, Point | None] = field(default_factory=dict)
    """Where lineages were opened."""
    spoilt: Left = ()
    """What was written of states that differ, none of which a majority has."""

    def enter(self, world: World) -> None:
        """A world was formed or adopted. If it starts from what is spoilt, there was nothing
        else to go on with."""
        self.world, parent = world, world.parent
        self.parents.setdefault(world.lineage, parent)
        if self.is_spoilt(world.lineage, world.step) or (
            parent is not None and self.is_spoilt(parent.lineage, parent.step)
        ):
            self.spoilt = ()

    def forget_world(self) -> None:
        """It is not known which one trains, or will."""
        self.world = None

    def spoil(self, lineage: Lineage, step: int) -> None:
        """Of ``lineage`` nothing counts from ``step`` on."""
        self.spoilt = merged(self.spoilt, ((lineage, step - 1),))

    def is_spoilt(self, lineage: Lineage, step: int) -> bool:
        return is_left(self.spoilt, lineage, step)

    def ends_at(self, steps: int) -> int:
        """The last step, in a job of so many."""
        return steps if self.world is None else self.world.ends_at(steps)

    def stops_at(self, step: int) -> bool:
        """Whether the script has asked to stop after that step."""
        return self.world is not None and self.world.last == step

    def has(self, point: Point) -> bool:
        """Whether the present world went through this state, as far as is known."""
        return self.world is None or descends(self.world.lineage, point, self.parents)

    def newest(self, reports: Reports) -> Choice | None:
        """The newest checkpoint of this line of which the reports have every shard."""
        if self.world is None:
            return choose.newest(reports)
        return choose.newest(reports, self.world.lineage, self.world.parent)
