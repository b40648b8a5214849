"""How often a job checkpoints, where it leaves that open."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.checkpoints import interval
from elasticd.core.context import Context
from elasticd.core.saving.testimony import Measured
from elasticd.core.words.records import World
from elasticd.core.words.shards import Interval
from elasticd.counting import counted
from elasticd.settings.job import JobSpec
from elasticd.types import JobId

_WORTH_A_CHANGE = 1.3
_NOTICE_SECONDS = 2.0


@dataclass(slots=True)
class Rhythm:
    """With every_steps = "auto": what is measured at one checkpoint says when the next is."""

    ctx: Context
    job: JobId
    spec: JobSpec
    every: int = 0
    """The interval that the members of the world go by; 0: that of the job."""
    watched_since: float | None = None
    before: int = 0
    """Recoveries until then, of earlier leaders' time: nobody knows how long that was."""
    failures: int = 0
    """Since then."""

    def enter(self, world: World) -> None:
        """A world was formed or adopted: it begins with the job's own interval."""
        self.every = 0
        if self.watched_since is None:
            self.watched_since, self.before = self.ctx.now, world.recoveries
        self.failures = max(self.failures, world.recoveries - self.before)

    def choose(self, step: int, measured: Measured, world: World | None) -> None:
        """The checkpoint of ``step`` is consistent."""
        ctx, pace = self.ctx, measured.step_seconds
        if self.spec.checkpoint.every_steps != "auto" or world is None or not pace:
            return
        cost = measured.stall_seconds + measured.cost_seconds
        watched = ctx.now - (self.watched_since or ctx.now)
        found = interval.best(cost, measured.write_seconds, pace, self.failures, watched)
        now = self.every or self.spec.checkpoint.interval_steps
        if max(found.steps, now) < _WORTH_A_CHANGE * min(found.steps, now):
            return
        self.every = found.steps
        # So far ahead that every member hears of it before it gets there.
        first = step + max(2, round(_NOTICE_SECONDS / pace))
        for node in world.members:
            ctx.send(node, Interval(self.job, world.generation, found.steps, first))
        ctx.emit(
            "checkpoint_interval",
            f"every {counted(found.steps, 'step')} from {first} on: {found.reason}",
            self.job,
            world.generation.counter,
            every_steps=found.steps,
            step=first,
            cost_seconds=round(cost, 6),
            seconds=round(found.seconds, 3),
        )
