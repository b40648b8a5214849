"""How the last world of one job gets on, as its members tell the leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from elasticd.core.leading.calls import ResultRelay
from elasticd.core.leading.ends import Ends
from elasticd.core.leading.patience import Patience
from elasticd.core.words.records import World
from elasticd.core.words.worldlines import shared_step
from elasticd.core.words.worlds import Progress
from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED, NodeId, Tag


class NamedValue(NamedTuple):
    """What a script gave to ``run.log`` in the body of a step, as one rank told it."""

    step: int
    value: float
    rank: int


@dataclass(slots=True)
class Course:
    """Of one job, while its driver lives."""

    patience: Patience
    calls: ResultRelay
    world: World | None = None
    progress: dict[NodeId, Progress] = field(default_factory=dict)
    committed: int = 0
    moved_at: float = 0.0
    """When a member last delivered, applied or committed something."""
    loss: float | None = None
    """Of the furthest step whose loss was told."""
    loss_step: int = 0
    last: int = -1
    """The step with which the next world ends, whatever breaks before it is made; -1: none is
    named."""
    restarts: int = 0
    """So often a plain job's script was begun anew, as far as its ranks have told."""
    named: dict[str, NamedValue] = field(default_factory=dict)
    """The last ones, by name, of committed steps."""
    released: set[NodeId] = field(default_factory=set)
    """Members that were told in this view that they may leave their loop: all steps are done and
    stored."""
    leaving: set[NodeId] = field(default_factory=set)
    """Members of this world that were told so by anybody, or have left."""
    ends: Ends = field(default_factory=Ends)

    def runs(self, generation: Tag) -> bool:
        """Whether this is the world that we know as the last one."""
        return self.world is not None and self.world.generation == generation

    def early(self, node: NodeId, progress: Progress) -> None:
        """A member tells of a world that we may have yet to hear of."""
        self.progress[node] = progress

    def follow(self) -> None:
        """A new view: what was told may have been lost."""
        self.released = set()
        self.patience.follow()
        self.calls.follow()

    def release(self, node: NodeId) -> None:
        """A member was told that it may leave its loop."""
        self.released.add(node)
        self.leave(node)

    def leave(self, node: NodeId) -> None:
        """Somebody, be it an earlier leader, has told a member so, or it has left."""
        self.leaving.add(node)

    def resume(self, step: int) -> None:
        """The job was paused, all members having stored ``step``."""
        self.committed = self.loss_step = step

    def source_of(self, node: NodeId) -> str | None:
        """Where a member of the world has its state from; None for any other node."""
        world = self.world
        if world is None or node not in world.members:
            return None
        return world.sources[world.members.index(node)]

    def stop(self, step: int) -> None:
        """The script has asked to stop, and this is to be the last step."""
        self.last = step

    def take(self, world: World) -> None:
        """An earlier leader has made this world."""
        self.ends.take(self.world, world)
        self.world, self.last = world, -1
        self.patience.enter(world)
        self.calls.enter(world)

    def begin(self, world: World) -> None:
        """This world is to form."""
        # Does the step whose loss we know lie before the new world, and in its line?
        if self.world is not None and shared_step(self.world, world) < self.loss_step:
            self.loss, self.loss_step = None, world.step
        self.take(world)
        self.ends.begin(world.members)
        self.progress, self.released, self.leaving = {}, set(), set()

    def found(self, committed: int, now: float) -> list[tuple[NodeId, Progress]]:
        """The world that was taken has come so far. What its members have told too early of it."""
        self.committed, self.moved_at = committed, now
        early, self.progress = self.progress, {}
        return [(node, told) for node, told in early.items() if self.runs(told.generation)]

    def formed(self, now: float) -> None:
        """All members are in the world, which may go back behind what was committed."""
        world = self.world
        assert world is not None
        if world.goes_back:
            self.committed = world.step
            self.named = {n: last for n, last in self.named.items() if last.step <= world.step}
            if self.loss_step != world.step:  # which may lie before it, in another line
                self.loss, self.loss_step = None, world.step
        self.committed = max(self.committed, world.step)
        self.moved_at = now

    @property
    def exchanges(self) -> bool:
        """Whether all members have delivered a step, and wait for its sum."""
        members = () if self.world is None else self.world.members
        phases = [told.phase for told in self.progress.values()]
        return 1 < len(members) == len(phases) and all(phase == "reduce" for phase in phases)

    def heard_of(self, committed: int) -> None:
        """A member knows of that step."""
        self.committed = max(self.committed, committed)

    def forget(self, node: NodeId) -> None:
        """What it told is old: it will tell anew."""
        self.progress.pop(node, None)
        self.patience.lose(node)

    def saw(self, node: NodeId, progress: Progress, now: float) -> bool:
        """A member's progress in the world; whether another step is committed."""
        before = self.progress.get(node)
        if before is None or _place(before) != _place(progress):
            if self.exchanges:
                self.patience.exchanged(now - self.moved_at, now)
            self.moved_at = now
        self.progress[node] = progress
        self.patience.saw(node, progress, now)
        if progress.loss is not None and progress.step >= self.loss_step:
            self.loss, self.loss_step = progress.loss, progress.step
        if isinstance(told := progress.metrics.get("restarts"), int | float):
            self.restarts = max(self.restarts, int(told))
        further = progress.committed > self.committed
        self.committed = max(self.committed, progress.committed)
        if before is None or _named(before) != _named(progress):
            self._show(node, progress.named)
        return further

    def _show(self, node: NodeId, named: Mapping[str, tuple[int, float]]) -> None:
        """Of each name the newest committed value counts, of one step's the lowest rank's."""
        if self.world is None or node not in self.world.members:
            return
        rank = self.world.members.index(node)
        for name, (step, value) in named.items():
            known = self.named.get(name)
            if step > self.committed or len(name) > MOST_NAME_LETTERS:
                continue
            if known is None and len(self.named) > MOST_NAMED:  # one more than that: keep_best's
                continue
            if known is None or (step, -rank) >= (known.step, -known.rank):
                self.named[name] = NamedValue(step, value, rank)


def _named(progress: Progress) -> tuple[int, dict[str, tuple[int, float]]]:
    return progress.committed, progress.named


def _place(progress: Progress) -> tuple[str, int, int]:
    return progress.phase, progress.step, progress.committed
