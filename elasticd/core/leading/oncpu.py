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
from elasticd.recovery.lineages import Ran, latest
from elasticd.types import Lineage, NodeId, Tag

BACK = "updates were made on GPUs again"


@dataclass(slots=True)
class OnCpu:
    """Of one job, while its driver lives."""

    since: dict[Lineage, Tag] = field(default_factory=dict)
    """The lineages, each with the world in which that began."""
    chosen: Lineage | None = None
    """So it was decided for this one, of which no update is made yet."""

    @property
    def told(self) -> Ran:
        """For the job's record."""
        return tuple(sorted(self.since.items()))

    def recall(self, told: Ran) -> None:
        """The job's record may tell more."""
        self.since = dict(latest(self.told, told))

    def choose(self, lineage: Lineage) -> None:
        """Its updates are to be made on the CPU, from the first one on."""
        self.chosen = lineage

    def enter(self, world: World) -> None:
        """A world is made, or heard of."""
        if world.on_cpu:
            self.since.setdefault(world.lineage, world.generation)

    def left_by(self, world: World) -> str:
        """Why a history is not what it was to be, if a leader that doesn't know of this has made
        a world of it; else nothing."""
        since = self.since.get(world.lineage)
        if world.on_cpu or since is None or world.generation <= since:
            return ""
        return (
            f"{BACK} in generation {world.generation.counter}, whose leader"
            f" ({world.generation.leader}) has an older version of elasticd"
        )

    def holds_for(self, start: Start) -> bool:
        """Whether the updates of a world that starts so are made on the CPU."""
        point, origin = start.resume.point, start.origin
        lineages = {point.lineage, *([origin.lineage] if origin is not None else ())}
        return bool(lineages & self.since.keys()) or (point.step == 0 and self.chosen in lineages)


def unable(members: Collection[NodeId], holdings: Mapping[NodeId, Holding]) -> list[NodeId]:
    """Members whose build makes no updates on the CPU."""
    return [node for node in members if not holdings[node].on_cpu]
