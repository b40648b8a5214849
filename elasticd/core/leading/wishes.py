"""What operators want of a job and of the nodes, and what its leader has done about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.jobs.nodes import ALL_ALIKE, NodeDuties
from elasticd.core.leading.fitness import Fitness
from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.worlds import Discharge
from elasticd.types import NodeId


@dataclass(slots=True)
class Wishes:
    """Of one job, while its driver lives."""

    ctx: Context
    record: JobRecord
    fitness: Fitness
    away: frozenset[NodeId] = frozenset()
    """Nodes that may have the job and are not in the view; they may come back."""
    standing: NodeDuties = ALL_ALIKE
    """Which nodes are drained, and which never train anything."""
    discharged: set[NodeId] = field(default_factory=set)
    """Those on which the job is not to run, whose trainers were told that they may end."""

    @property
    def paused(self) -> bool:
        """Whether the job shall rest."""
        return self.record.paused

    @property
    def unwanted(self) -> frozenset[NodeId]:
        """Nodes that no job is to run on."""
        return self.standing.unwanted

    @property
    def barred(self) -> frozenset[NodeId]:
        """The nodes on which this job is not to run."""
        return self.unwanted | self.fitness.left_out

    def want(
        self, record: JobRecord, away: frozenset[NodeId], standing: NodeDuties = ALL_ALIKE
    ) -> None:
        """They want this now, and these are away."""
        self.record, self.away, self.standing = record, away, standing

    def follow(self) -> None:
        """A new view: what was told may have been lost."""
        self.discharged.clear()

    def without_unwanted(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those on which the job may run."""
        barred = self.barred
        return [node for node in nodes if node not in barred]

    def without_left_out(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those that can take part, be they unwanted."""
        never = self.fitness.left_out | self.standing.idle
        return [node for node in nodes if node not in never]

    def discharge(self, world: World, roster: Roster) -> None:
        """End the trainers of nodes that it is not to run on, once the world runs without them."""
        barred = self.barred
        for node in roster.view.members:
            if node in world.members:
                self.discharged.discard(node)
            elif node in barred and node not in self.discharged:
                status = roster.statuses.get(node)
                if status is not None and status.trainer is not None:
                    self.discharged.add(node)
                    self.ctx.send(node, Discharge(self.record.id))
        self.discharged &= barred
