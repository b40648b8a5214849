"""Calls of ``run.on_main`` in the last world: results go to all, and count once all have them.

A trainer that waits for a result which nobody is going to give is found here: the caller is past
the state in which the call is made, and did not make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.leading.stopping import is_past
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Agreed, CallResult, Counted, Progress, Returned
from elasticd.types import JobId, NodeId

_EARLY = 4096
"""So many messages of a world that is not known yet are kept."""
_OWN = ("user", "evaluate")
"""Phases in which the script's own code runs, and has its own deadline."""


@dataclass(slots=True)
class ResultRelay:
    """Of one job, while its driver lives."""

    ctx: Context
    job: JobId
    user_code_seconds: float
    world: World | None = None
    had: dict[tuple[NodeId, int], int] = field(default_factory=dict)
    """How many results of a body a member has."""
    agreed: dict[int, int] = field(default_factory=dict)
    """How many of a body were said to be everywhere."""
    waits: dict[NodeId, tuple[Counted, float]] = field(default_factory=dict)
    """Whose script waits for a result, and since when."""
    early: list[tuple[NodeId, Returned | Counted]] = field(default_factory=list)

    def enter(self, world: World) -> None:
        """This is the last world from now on."""
        self.world = world
        self.had, self.agreed, self.waits = {}, {}, {}
        early, self.early = self.early, []
        for node, told in early:
            self.hear(node, told)

    def follow(self) -> None:
        """A new view: what was told may have been lost. All that was heard is told again."""
        self.agreed = {}

    def hear(self, node: NodeId, told: Returned | Counted) -> None:
        """What a member tells."""
        world = self.world
        if world is None or told.generation > world.generation:
            self.early = [*self.early[1 - _EARLY :], (node, told)]
        elif told.generation == world.generation and node in world.members:
            if isinstance(told, Returned):
                self._returned(world, node, told)
            else:
                self._counted(node, told)
            self._agree(world, told.body)

    def _returned(self, world: World, node: NodeId, told: Returned) -> None:
        if node != caller(world):
            return
        self._has(node, told.body, told.index + 1)
        result = CallResult(self.job, told.generation, told.body, told.index, told.data)
        for member in world.members:
            if member != node:
                self.ctx.send(member, result)

    def _counted(self, node: NodeId, told: Counted) -> None:
        self._has(node, told.body, told.has)
        before = self.waits.get(node)
        if before is None or _call(before[0]) != _call(told):
            self.waits[node] = told, self.ctx.now

    def _has(self, node: NodeId, body: int, count: int) -> None:
        self.had[node, body] = max(count, self.had.get((node, body), 0))

    def _agree(self, world: World, body: int) -> None:
        count = min(self.had.get((node, body), 0) for node in world.members)
        if count > self.agreed.get(body, 0):
            self.agreed[body] = count
            for member in world.members:
                self.ctx.send(member, Agreed(self.job, world.generation, body, count))

    # --- calls that nobody answers ----------------------------------------------------------------

    def _waiting(self, world: World) -> dict[NodeId, tuple[Counted, float]]:
        """Who waits for what the caller has not given."""
        main = caller(world)
        return {
            node: (told, since)
            for node, (told, since) in self.waits.items()
            if told.wants > self.had.get((main, told.body), 0)
        }

    def bodies(self) -> dict[NodeId, int]:
        """In the body of which step members wait."""
        waiting = self._waiting(self.world) if self.world is not None else {}
        return {node: told.body for node, (told, _) in waiting.items()}

    @property
    def watches(self) -> bool:
        """Whether somebody waits."""
        return self.world is not None and bool(self._waiting(self.world))

    def stuck(self, progress: Mapping[NodeId, Progress]) -> str:
        """Why the job can't go on, if a script waits for what is not going to come."""
        world = self.world
        if world is None:
            return ""
        main = caller(world)
        at = progress.get(main)
        for node, (told, since) in self._waiting(world).items():
            past = at is not None and is_past(at, told.step)
            own = at is None or at.phase in _OWN
            late = not own and self.ctx.now >= since + self.user_code_seconds
            if past or late:
                where = f"in the body of step {told.body}" if told.body else "above the loop"
                made = self.had.get((main, told.body), 0)
                return (
                    f"rank {world.members.index(node)} ({node}) waits {where} for what its call "
                    f"{told.wants} of run.on_main() returns, rank {world.caller_rank} ({main}) has "
                    f"made {made}: call it on every rank alike"
                )
        return ""

    def deadlines(self) -> list[float]:
        if self.world is None:
            return []
        return [
            since + self.user_code_seconds
            for _, since in self._waiting(self.world).values()
            if since + self.user_code_seconds > self.ctx.now
        ]


def caller(world: World) -> NodeId:
    """Who runs the functions that ``run.on_main`` is given."""
    return world.members[world.caller_rank]


def _call(told: Counted) -> tuple[int, int, int]:
    return told.body, told.wants, told.step
