"""In which histories of one job updates are made on the CPU, since GPUs differ and CPUs agree.

That is decided before the first update, and holds for all that comes of that state: the same
history has the same bits from its first step to its last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from elasticd.core.leading.planning import Start
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Holding
from elasticd.recovery.exactness import BACK_ON_GPUS
from elasticd.recovery.lineages import MadeOnCpu
from elasticd.types import NO_TAG, Lineage, NodeId, Tag


@dataclass(slots=True)
class OnCpu:
    """Of one job, while its driver lives."""

    known: dict[Lineage, tuple[Tag, bool]] = field(default_factory=dict)
    """Of lineages for which it was ever decided: since which world, and whether it is so."""
    chosen: Lineage | None = None
    """So it was decided for this one, of which no update is made yet."""

    @classmethod
    def of(cls, told: MadeOnCpu) -> OnCpu:
        """As a job's record tells."""
        return cls({lineage: (since, so) for lineage, since, so in told})

    @property
    def told(self) -> MadeOnCpu:
        """For the job's record."""
        return tuple((lineage, *found) for lineage, found in sorted(self.known.items()))

    @property
    def anywhere(self) -> bool:
        """Whether it is so in any history that is known."""
        return any(so for _, so in self.known.values())

    def recall(self, told: MadeOnCpu, ours: World | None) -> None:
        """The job's record may tell more; ``ours`` is the world that we lead."""
        for lineage, since, so in told:
            self._learn(lineage, since, so, ours)

    def choose(self, lineage: Lineage) -> None:
        """Its updates are to be made on the CPU, from the first one on."""
        self.chosen = lineage

    def enter(self, world: World, ours: World | None = None) -> str:
        """A world is made, or heard of. Why its history is not what it was to be, if a leader that
        doesn't know of this has made it; else nothing."""
        since, so = self.known.get(world.lineage, (NO_TAG, False))
        if world.on_cpu:
            if not so:
                self._learn(world.lineage, world.generation, True, ours)
        elif so and world.generation > since:
            self.known[world.lineage] = world.generation, False
            if world.step:
                return (
                    f"{BACK_ON_GPUS} in generation {world.generation.counter}, whose leader"
                    f" ({world.generation.leader}) has an older version of elasticd"
                )
        return ""

    def _learn(self, lineage: Lineage, since: Tag, so: bool, ours: World | None) -> None:
        """What is decided later counts. A world of which none of our members knew when ours was
        made has never come to an update."""
        known = self.known.get(lineage)
        if known is not None and known[0] >= since:
            return
        if known is None and so and ours is not None and ours.lineage == lineage:
            so = ours.on_cpu or ours.generation <= since
            since = since if so else ours.generation
        self.known[lineage] = since, so

    def is_so(self, lineage: Lineage) -> bool:
        """Whether its updates are made on the CPU."""
        return self.known.get(lineage, (NO_TAG, False))[1]

    def holds_for(self, start: Start) -> bool:
        """Whether the updates of a world that starts so are made on the CPU."""
        point, origin = start.resume.point, start.origin
        lineages = {point.lineage, *([origin.lineage] if origin is not None else ())}
        chosen = point.step == 0 and self.chosen in lineages
        return chosen or any(self.is_so(lineage) for lineage in lineages)


def unable(members: Collection[NodeId], holdings: Mapping[NodeId, Holding]) -> list[NodeId]:
    """Members whose build makes no updates on the CPU."""
    return [node for node in members if not holdings[node].on_cpu]
