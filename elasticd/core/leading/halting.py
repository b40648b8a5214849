"""How a job is paused: all members commit the same step, store it, and go no further.

The leader names a step that nobody has reached. A member that hears of it too late goes on past it,
which its progress shows: then a later step is named, each time twice as far ahead, so that steps
faster than messages halt, too. Nothing committed is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.core.context import Context
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Halt, Progress
from elasticd.types import JobId, NodeId, Tag

HALTED = "paused"
"""The phase of a trainer that goes no further."""
_AHEAD_STEPS, _MOST_AHEAD_STEPS = 2, 256


@dataclass(slots=True)
class Halting:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    world: World | None = None
    step: int = -1
    """Where the members of ``world`` were told to halt; -1: nowhere."""
    ahead_steps: int = _AHEAD_STEPS
    """So far beyond the furthest member is the next step that is named."""
    lifted: Tag | None = None
    """The world whose members stand still, though they were told to go on."""

    def reset(self) -> None:
        """Messages may have been lost: say it again."""
        self.world, self.step, self.lifted = None, -1, None
        self.ahead_steps = _AHEAD_STEPS

    def order(self, world: World, progress: Mapping[NodeId, Progress], last_step: int) -> None:
        """Name a step, if none is named or somebody is beyond it. Close to the end none is: the job
        ends by itself."""
        known = progress.keys() == set(world.members)
        same = self.world is not None and self.world.generation == world.generation
        if not known or (same and not any(p.has_begun_after(self.step) for p in progress.values())):
            return
        if same:  # the last one was named too late
            self.ahead_steps = min(2 * self.ahead_steps, _MOST_AHEAD_STEPS)
        newest = max(p.step for p in progress.values())
        if all(p.phase == HALTED and p.step == newest for p in progress.values()):
            self.world, self.step = world, newest  # an earlier leader has told them
        elif newest + self.ahead_steps < last_step:
            self.world, self.step = world, newest + self.ahead_steps
            self._tell(world, self.step)
        else:
            self.lift(world, progress)

    def lift(self, world: World, progress: Mapping[NodeId, Progress]) -> None:
        """Let the members go on, whoever told them to halt."""
        ours = self.world is not None and self.world.generation == world.generation
        stand = any(p.phase == HALTED for p in progress.values())
        if ours or (stand and self.lifted != world.generation):
            self._tell(world, -1)
        self.reset()
        self.lifted = world.generation if stand else None

    def _tell(self, world: World, step: int) -> None:
        for node in world.members:
            self.ctx.send(node, Halt(self.job, world.generation, step))

    def reached(self, world: World, progress: Mapping[NodeId, Progress]) -> bool:
        """Whether all members have halted."""
        return (
            self.world is not None
            and self.world.generation == world.generation
            and progress.keys() == set(world.members)
            and all(p.phase == HALTED and p.step == self.step for p in progress.values())
        )
