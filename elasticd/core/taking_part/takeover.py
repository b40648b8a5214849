"""Going on with the processes that a daemon before this one has started for a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from elasticd.core.context import Context
from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.place import Place
from elasticd.core.taking_part.reports import Reports
from elasticd.core.taking_part.trainers import Trainer
from elasticd.core.words.effects import ChildId
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Form


class Heir(Protocol):
    """Who goes on with them: elastic.py."""

    ctx: Context
    reports: Reports
    crew: Crew
    answers: Answers
    place: Place | None

    def place_in(self, form: Form, trainer: Trainer, has_state: bool) -> Place: ...


def take_over(
    us: Heir, trainers: Sequence[AdoptedTrainer], reducers: Sequence[AdoptedReducer]
) -> set[ChildId]:
    """Which of the processes are kept."""
    world = us.reports.world
    first = us.crew.adopt(trainers, world.generation if world is not None else None)
    if first is None:
        return set()
    trainer, said = us.crew.trainer, first.said
    us.answers.recall(said.serial)
    if world is not None and said.took is not None and us.ctx.me in world.members:
        us.reports.told.states.took(us.ctx.me, world, said.took)
    kept: set[ChildId] = set()
    if trainer is not None and world is not None and said.generation == world.generation:
        kept |= _take_place(us, world, trainer, reducers)
    if trainer is not None and trainer.phase == "waiting":
        us.crew.run(trainer)
    return kept | us.crew.children()


def _take_place(
    us: Heir, world: World, trainer: Trainer, reducers: Sequence[AdoptedReducer]
) -> set[ChildId]:
    """The trainer is in the newest world that we know of; and the reducer, if it lives."""
    if us.ctx.me not in world.members:
        return set()
    us.place = place = us.place_in(Form(world), trainer, trainer.entered == world.generation)
    serving = next((each for each in reducers if each.serves(world.generation)), None)
    return place.adopt(serving)
