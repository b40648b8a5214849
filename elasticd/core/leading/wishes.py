"""What operators want of a job and of the nodes, and what its leader has done about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.leading.roster import HOLDING, Roster
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.worlds import Discharge
from elasticd.types import NodeId


@dataclass(slots=True)
class Wishes:
    """Of one job, while its driver lives."""

    ctx: Context
    record: JobRecord
    unwanted: frozenset[NodeId] = frozenset()
    """Nodes that no job is to run on."""
    discharged: set[NodeId] = field(default_factory=set)
    """Those of them whose trainers were told that they may end."""

    @property
    def paused(self) -> bool:
        """Whether the job shall rest."""
        return self.record.paused

    def want(self, record: JobRecord, unwanted: frozenset[NodeId]) -> None:
        """They want this now."""
        self.record, self.unwanted = record, unwanted

    def follow(self) -> None:
        """A new view: what was told may have been lost."""
        self.discharged.clear()

    def without_unwanted(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those on which jobs may run."""
        return [node for node in nodes if node not in self.unwanted]

    def discharge(self, world: World, roster: Roster, unfit: Mapping[NodeId, str]) -> None:
        """End the trainers of nodes that no job is to run on, once the world runs without them; and
        those that have trained on ``unfit`` ones, for the reason given there."""
        holding = roster.trainers(*HOLDING)
        for node in roster.view.members:
            if node in world.members:
                self.discharged.discard(node)
            elif node not in self.discharged:
                status = roster.statuses.get(node)
                trains = status is not None and status.trainer is not None
                if (node in self.unwanted and trains) or (node in unfit and node in holding):
                    self.discharged.add(node)
                    self.ctx.send(node, Discharge(self.record.id, unfit.get(node, "")))
        self.discharged &= self.unwanted | unfit.keys()
