"""Has a job begin with shares by speeds that were measured before (``calibrate``, ``preflight``).

It begins with equal ones otherwise, and from its first steps on the shares follow what members
measure themselves, as ever (recovery/speed.py). Nobody waits for any of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from elasticd.core.node import Node
from elasticd.core.words.effects import SpeedsMeasured
from elasticd.preflight.firstshares import relative_seconds
from elasticd.preflight.seen import NodeSeen, NodeUnseen
from elasticd.shell.control.answers import in_time
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId, NodeId

ANSWER_SECONDS = 2.0
"""What nodes say later comes too late."""


@dataclass(slots=True)
class FirstShares:
    """One node's, for the jobs that it leads. ``ask``: what a node says of itself."""

    node: Node
    ask: Callable[[NodeId], Awaitable[NodeSeen | NodeUnseen]]
    post: Callable[[SpeedsMeasured], None]
    _asking: set[JobId] = field(default_factory=set)
    _tasks: Tasks = field(default_factory=lambda: Tasks("asking nodes how fast they are"))

    def job_begins(self, job: JobId) -> None:
        """It has its turn, if that is new: where a world was formed before members know better."""
        driver = self.node.drivers.by_job.get(job)
        told = self.node.tables.summaries.get(job, {})
        if driver is None or driver.plain or driver.world is not None or told.get("generation"):
            return
        if job not in self._asking:
            self._asking.add(job)
            self._tasks.start(self._begin(job, driver.office.view.members))

    async def _begin(self, job: JobId, nodes: tuple[NodeId, ...]) -> None:
        try:
            told = await in_time(map(self.ask, nodes), ANSWER_SECONDS)
        finally:
            self._asking.discard(job)
        speeds = {each.node: each.facts.gflops for each in told if isinstance(each, NodeSeen)}
        if found := relative_seconds(speeds):
            said = ", ".join(f"{node} {speeds[node]:.0f}" for node in found)
            reason = f"its first shares follow the speeds that were measured before: {said} GFLOPS"
            self.post(SpeedsMeasured(job, found, reason))
