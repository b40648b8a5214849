"""Scripts that keep state outside of their run, which who joins has never had; and whether members
show that they compute the same."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.trainers import TrainerProves
from elasticd.errors import GenerationLost
from elasticd.train.protocol.newcomers import joins, shows
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, ProofPart

from .byrank import THING, variant
from .chips import probed
from .threads import Until, Wait
from .writing import state_digest

if TYPE_CHECKING:
    from .cluster import JobShape
    from .trainer import Trainer


@dataclass(slots=True)
class Outside:
    """What of a process nobody can give to another: which bodies it has run."""

    bodies: str = ""
    steps: int = 0
    """So many has it made since it last took something from another."""

    def ran(self, point: Point | None, *, void: bool) -> None:
        """A body has ended, before the first one the code above the loop; None: what it has made
        is nobody's."""
        if point is None or point.step:
            told = f"{self.bodies} {point.stamp if point else None} {void}"
            self.bodies = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()

    def took(self) -> None:
        self.steps = 0

    def reduced(self, *, took: bool) -> None:
        self.steps = 0 if took else self.steps + 1


def prove(
    trainer: Trainer, world: TrainerWorld | None, part: ProofPart, step: int
) -> Generator[Wait, None, None]:
    """As elasticd/train/steps/proving.py does; raises GenerationLost."""
    if world is None or not shows(world, part, step):
        return
    if trainer.protocol.world is not world:
        raise GenerationLost("this world has ended")
    bodies = trainer.outside.bodies if trainer.cluster.shapes[trainer.job].outside == part else ""
    digest = state_digest(step, part == "body" and trainer.spoilt, drift=trainer.drift)
    digests = {f"model/{part}": f"{digest} {bodies}{probed(trainer)}"}
    if part == "body" and (
        kept := variant(trainer.cluster.shapes[trainer.job], trainer.host.name, step)
    ):
        digests[THING] = str(kept)
    trainer.say(TrainerProves(world.generation, part, digests))
    if joins(world):
        trainer.phase("idle")
        yield Until(lambda: trainer.protocol.visits.is_proven(part))
        trainer.protocol.current()
        trainer.phase("user")


def counts(trainer: Trainer) -> bool:
    """Whether what it holds does. What a body of its own has made, and nobody has compared, is
    nobody's."""
    held = trainer.protocol.held
    return held.given or not held.unproven


def too_few_alike(shape: JobShape, reason: str) -> bool:
    """Whether a job may fail for this reason: who joins computes otherwise, and it needs them."""
    keeps = bool(shape.outside) or shape.by_rank
    return keeps and shape.world_min > 1 and reason.startswith("the script keeps state outside")


def overlooks(record: JobRecord, world: World, keeping: Iterable[Trainer | None]) -> str:
    """What is wrong, or nothing, with a world that is called exact: its leader knows by the job's
    record that the script keeps state outside of its run, and of those ``keeping`` what they hold
    none has had it from the start."""
    # Left out once and tried again it may have been a wrong bit.
    told = any(
        "keeps state outside" in entry.reason and (entry.out or entry.turn > 2)
        for entry in record.unfit
    )
    # Who has died since then may have had it.
    stay = [t for t in keeping if t is None or not t.protocol.held.unproven]
    if not told or not world.exact or not world.step or stay:
        return ""
    return f"{world.generation} is called exact, and nobody in it has what the script keeps outside"


def was_unlike(record: JobRecord | None, node: str) -> bool:
    """Whether the node was left out for what it computes, and may be tried again: it has to take
    the state, though what it holds has the same stamp."""
    return record is not None and any(
        entry.node == node and entry.shows_outside for entry in record.unfit
    )


_SURE = 2
"""Steps after which a member counts as one that has stayed."""


def unlike(kind: str, world: World, step: int, trainers: Iterable[Trainer]) -> str:
    """Why these must not reduce a step together, or nothing: who joins computes something else."""
    made = {trainer: trainer.outside.steps for trainer in trainers}
    sure = {t.outside.bodies for t, steps in made.items() if steps >= _SURE}
    # What a gradient does not show does no harm before the second step.
    news = {t for t, steps in made.items() if steps < _SURE and (kind == "grain" or steps)}
    odd = sorted(t.name for t in news if t.outside.bodies not in sure)
    if not kind or not sure or not odd:
        return ""
    return (
        f"step {step} is reduced in {world.generation} with {', '.join(odd)}, whose script computes"
        " otherwise"
    )
