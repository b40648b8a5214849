"""The world that a trainer is in, if it is in one, and what has been settled there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.words import trainers as w
from elasticd.errors import GenerationLost
from elasticd.train.world import TrainerWorld
from elasticd.types import ProofPart, Tag


@dataclass(slots=True)
class HaltOrder:
    """``step`` is the one to go no further than; -1: none."""

    step: int = -1
    begun: int = -1
    """The newest step whose grains are being computed, or were, in this world."""

    def begins(self, step: int) -> None:
        """Its grains are going to be computed."""
        self.begun = step

    def order(self, world: TrainerWorld, step: int, at: int | None) -> None:
        """One that comes when we are ``at`` a later step is not obeyed: our progress shows."""
        self.step = step if at is None or at < step else -1
        if self.step >= 0:
            # It is stored, and if we go on after all, the others at their own times.
            every = world.writes.every_at(step + 1)
            world.writes.changes.extend([(step, 1), (step + 1, every)])


@dataclass(slots=True)
class Visit:
    """One world, while the trainer is in it."""

    world: TrainerWorld
    settled: bool = False
    """It holds the state from which that starts."""
    probed: bool = False
    judged: bool = False
    proven: tuple[ProofPart, ...] = ()
    """What of its first step was found to be as it should be."""

    def settles(self) -> bool:
        """The state is in place; whether it was not before."""
        before, self.settled = self.settled, True
        return not before

    def probes(self) -> bool:
        """The trainer tells what its first grain came to; whether it has not before."""
        before, self.probed = self.probed, True
        return not before


@dataclass(slots=True)
class Visits:
    """Of one trainer, one at a time, or none. Words of a world that it has left mean nothing."""

    visit: Visit | None = None
    halting: HaltOrder = field(default_factory=HaltOrder)
    """Of the world entered last."""

    @property
    def world(self) -> TrainerWorld | None:
        return None if self.visit is None else self.visit.world

    def current(self) -> TrainerWorld:
        """The world that the trainer is in.

        Raises:
            GenerationLost: it has ended.
        """
        if self.visit is None:
            raise GenerationLost("this world has ended")
        return self.visit.world

    def world_of(self, generation: Tag) -> TrainerWorld | None:
        """The one that the trainer is in, if it is that one."""
        world = self.world
        return world if world is not None and world.generation == generation else None

    def enter(self, world: TrainerWorld) -> None:
        self.visit, self.halting = Visit(world), HaltOrder()

    def leave(self) -> TrainerWorld | None:
        """Which one it was."""
        left, self.visit = self.world, None
        return left

    def hear(
        self, word: w.TellVerdict | w.TellProven | w.SetInterval | w.HaltAt, at: int | None
    ) -> bool:
        """What the daemon says of a world, when we are ``at`` a step; whether it is of ours."""
        visit, world = self.visit, self.world_of(word.generation)
        if visit is None or world is None:
            return False
        match word:
            case w.TellVerdict():
                visit.judged = True
            case w.TellProven(_, part):
                visit.proven += (part,)
            case w.SetInterval(_, every, step):
                world.writes.changes.append((step, every))
            case w.HaltAt(_, step):
                self.halting.order(world, step, at)
            case _:
                assert_never(word)
        return True

    def is_halted(self, step: int) -> bool:
        """Whether to go no further than this step, for now."""
        return self.visit is not None and self.halting.step == step

    @property
    def is_judged(self) -> bool:
        """Whether there is an end to the wait for the verdict."""
        return self.visit is None or self.visit.judged

    def is_proven(self, part: ProofPart) -> bool:
        """Whether there is an end to the wait for that."""
        return self.visit is None or part in self.visit.proven
