"""Whether those who could enter a world are let in."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.node import Node
from elasticd.types import JobId, Tag

_STEPS = 4
"""So many may pass before a state is lent: reports cross, and the order is for a later step."""


@dataclass(slots=True)
class Newcomers:
    idle: dict[Tag, int] = field(default_factory=dict)
    """By world: the step since which newcomers wait while nothing is done for any."""

    def progressed(self, leader: Node | None, job: JobId) -> str:
        """After a member of a job's world has said how far it is: what is wrong, or nothing."""
        driver = leader.drivers.by_job.get(job) if leader is not None else None
        if driver is None or (world := driver.office.growth.world) is None:
            return ""
        growth, committed = driver.office.growth, driver.office.course.committed
        waiting = [node for node, each in growth.newcomers.items() if each.stage == "waits"]
        # Near its end a job lends nothing more.
        if growth.step < 0 or not waiting or len(waiting) < len(growth.newcomers):
            self.idle.pop(world.generation, None)
            return ""
        since = self.idle.setdefault(world.generation, committed)
        if committed - since < _STEPS:
            return ""
        return f"{waiting} wait since step {since} to be let in, and nobody does anything for them"
