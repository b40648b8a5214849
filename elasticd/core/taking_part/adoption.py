"""Children that outlived the daemon before this one, until each has said how it is or has ended.

A trainer and its reducer go on training while no daemon listens to them. The new daemon decides
nothing about their jobs before it has heard them, and then goes on as if it had started them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.words import effects as e
from elasticd.core.words.reducers import ReducerHere
from elasticd.core.words.trainers import TrainerHere
from elasticd.types import JobId, Tag

_SPOKEN = (e.ChildSaid, e.ReducerReady, e.ChildExited, e.ChildStopped)
"""What children do, in which order matters."""


@dataclass(frozen=True, slots=True)
class AdoptedTrainer:
    """A trainer that introduced itself."""

    left: e.Leftover
    said: TrainerHere

    @property
    def used(self) -> bool:
        """Whether it was ever given a world."""
        return self.said.used


@dataclass(frozen=True, slots=True)
class AdoptedReducer:
    """A reducer that introduced itself."""

    left: e.Leftover
    said: ReducerHere

    def serves(self, generation: Tag) -> bool:
        return self.said.generation == generation


@dataclass(slots=True)
class Adoption:
    """Collects introductions; what children say or do behind them is kept for later."""

    ctx: Context
    waiting: dict[e.ChildId, e.Leftover]
    deadline: float | None = None
    here: dict[e.ChildId, AdoptedTrainer | AdoptedReducer] = field(default_factory=dict)
    """Those that have introduced themselves."""
    later: deque[e.Event] = field(default_factory=deque)

    def take(self, event: e.Event) -> bool:
        """Whether the event is of a child that is being adopted: it is dealt with, or kept."""
        if self.deadline is None:
            self.deadline = self.ctx.now + self.ctx.timing.adopt_seconds
        if not isinstance(event, _SPOKEN):
            return False
        if event.child not in self.waiting or not self._heard_of(event):
            self.keep(event)
        return True

    def late(self, seconds: float) -> None:
        """This node did not run for so long; that says nothing of the children."""
        if self.deadline is not None:
            self.deadline += seconds

    def keep(self, event: e.Event) -> None:
        """For later, when all have said how they are."""
        self.later.append(event)

    def _heard_of(self, event: e.Event) -> bool:
        """Whether a child that was waited for introduces itself, or has ended."""
        if isinstance(event, e.ChildExited):
            self.ctx.log("info", "a child of the daemon before has ended", child=event.child)
            del self.waiting[event.child]
            return True
        if not isinstance(event, e.ChildSaid):
            return False
        child, said = event.child, event.message
        if isinstance(said, TrainerHere):
            self.here[child] = AdoptedTrainer(self.waiting.pop(child), said)
        elif isinstance(said, ReducerHere):
            self.here[child] = AdoptedReducer(self.waiting.pop(child), said)
        return isinstance(said, TrainerHere | ReducerHere)

    @property
    def complete(self) -> bool:
        overdue = self.deadline is not None and self.ctx.now >= self.deadline
        return not self.waiting or overdue

    def deadlines(self) -> list[float]:
        return [] if self.deadline is None else [self.deadline]

    def give_up(self) -> None:
        """End the children that have not said a word."""
        for child in self.waiting:
            self.ctx.do(e.KillChild(child, "it did not come back to its restarted daemon"))
        self.waiting.clear()

    def trainers(self, job: JobId) -> list[AdoptedTrainer]:
        found = (each for each in self.here.values() if isinstance(each, AdoptedTrainer))
        return [each for each in found if each.left.job == job]

    def reducers(self) -> list[AdoptedReducer]:
        return [each for each in self.here.values() if isinstance(each, AdoptedReducer)]
