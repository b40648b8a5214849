"""What a node makes of what its trainer says."""

from __future__ import annotations

from typing import Protocol, assert_never

from elasticd.core.context import Context
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.looking import SecondLook
from elasticd.core.taking_part.place import Place
from elasticd.core.taking_part.reports import Reports
from elasticd.core.taking_part.retelling import (
    failure_for_leader,
    progress_for_leader,
    shards_for_leader,
)
from elasticd.core.taking_part.trainers import Trainer
from elasticd.core.words.effects import FetchState, FromChild
from elasticd.core.words.records import StopAsked, World
from elasticd.core.words.reducers import ReducerBroken, ReducerFormed, ReducerHere, ReducerWarm
from elasticd.core.words.shards import Digest
from elasticd.core.words.trainers import (
    OfWorld,
    TrainerAtRun,
    TrainerCame,
    TrainerCounts,
    TrainerDigest,
    TrainerExported,
    TrainerFinished,
    TrainerHere,
    TrainerHolds,
    TrainerLends,
    TrainerLoaded,
    TrainerLostReducer,
    TrainerLostScript,
    TrainerNotExported,
    TrainerNotFinite,
    TrainerOutOfMemory,
    TrainerPrepared,
    TrainerProbed,
    TrainerProgress,
    TrainerProves,
    TrainerRechecked,
    TrainerRefused,
    TrainerReturned,
    TrainerSampled,
    TrainerSkipped,
    TrainerSpoilt,
    TrainerStops,
    TrainerUnloaded,
    TrainerWaiting,
    TrainerWrote,
)
from elasticd.core.words.worlds import Counted, Failing, Lent, Rechecked, Returned, Sampled


class Listener(Protocol):
    """Whose children speak: elastic.py."""

    ctx: Context
    reports: Reports
    crew: Crew
    answers: Answers
    place: Place | None
    failing: Failing | None
    look: SecondLook

    def fails(self, failing: Failing) -> None: ...

    def answer(self) -> None: ...

    def replace(self, why: str) -> None: ...


def trainer_says(us: Listener, trainer: Trainer, word: FromChild) -> None:
    """Our trainer, or its spare; of a spare only how it starts is of interest."""
    ours = trainer is us.crew.trainer
    if isinstance(word, TrainerWaiting):
        trainer.waits()
        if ours:
            us.crew.run(trainer)
    elif isinstance(word, TrainerAtRun):
        if trainer.phase in ("starting", "waiting"):
            us.crew.at_run(trainer, word)
            if ours:
                us.reports.report()
    elif ours:
        _says(us, trainer, word)


def _says(us: Listener, trainer: Trainer, word: FromChild) -> None:
    job = us.reports.job
    match word:
        case TrainerHolds():
            us.answers.on_holds(word)
            us.answer()
        case TrainerPrepared(serial, point, reason, replays):
            if point is not None and trainer.phase == "ready":
                trainer.prepare(point)
                us.reports.report()
            if done := us.answers.prepared(serial, point, reason, replays):
                us.reports.tell(done)
        case TrainerRefused(reason, unfit, looping):
            kept = us.place is not None
            if unfit:
                us.fails(Failing(reason, looping))
                us.reports.accuse("worker_exit", reason, failing=us.failing, kept=kept)
                us.reports.report()
            else:
                us.reports.accuse("worker_exit", reason, fatal=reason, kept=kept)
        case TrainerProbed(generation=generation):
            # What was computed in a world before is told again to a daemon that was restarted.
            world = us.reports.world
            if generation is None or (world is not None and world.generation == generation):
                trainer.probed(word.result())
                us.reports.report()
        case TrainerWrote():
            us.reports.wrote(shards_for_leader(job, word))
        case TrainerDigest(generation, step, stamp, digest, parts):
            us.reports.shows(Digest(job, generation, step, stamp, digest, parts))
        case TrainerSkipped():
            text = f"step {word.step} was not written here: {word.reason}"
            counter = word.generation.counter
            us.ctx.emit("checkpoint_skipped", text, job, counter, step=word.step)
            us.reports.skips(failure_for_leader(job, word))
        case (
            TrainerCame() | TrainerLoaded() | TrainerLends() | TrainerSpoilt() | TrainerUnloaded()
            | TrainerProgress() | TrainerLostReducer() | TrainerOutOfMemory()
            | TrainerNotFinite() | TrainerRechecked() | TrainerSampled()
            | TrainerProves() | TrainerStops() | TrainerReturned() | TrainerCounts()
            | TrainerFinished() | TrainerLostScript()
        ):  # fmt: skip
            world = us.reports.world
            if world is not None and world.generation == word.generation:
                _says_of_world(us, trainer, word, world)
        case (
            TrainerWaiting() | TrainerAtRun() | TrainerHere() | TrainerExported()
            | TrainerNotExported() | ReducerWarm() | ReducerHere() | ReducerFormed()
            | ReducerBroken()
        ):  # fmt: skip
            us.ctx.log("warning", "a trainer said what is not for us", kind=word.kind)
        case _:
            assert_never(word)


def _says_of_world(us: Listener, trainer: Trainer, word: OfWorld, world: World) -> None:
    """Of the newest world; how far it came counts also once that was left."""
    if isinstance(word, TrainerProgress):
        _trains(us, word)
        return
    place, job, generation = us.place, us.reports.job, world.generation
    if place is None:
        return
    match word:
        case TrainerCame(_, began):
            trainer.comes(began)
            if not place.has_state:  # else nobody waits for it
                us.reports.report()
        case TrainerLoaded():
            place.loaded()
        case TrainerLends(_, step, stamp, reason, never):
            us.reports.tell(Lent(job, generation, step, stamp, reason, never))
        case TrainerSpoilt(_, reason):
            us.ctx.log("warning", "stored shards are rotten", reason=reason)
            us.ctx.do(FetchState(trainer.child, world, None, careful=True))
        case TrainerUnloaded(_, reason, spent):
            us.reports.accuse("state_unavailable", reason)
            if spent:
                us.replace(reason)
        case TrainerLostReducer(_, evidence):
            if trainer.phase in ("active", "finished"):
                us.reports.accuse("reducer_gone", evidence)
        case TrainerOutOfMemory(_, evidence):
            if trainer.phase == "active":
                us.reports.accuse("oom", evidence)
        case TrainerLostScript(_, fault, evidence):
            if trainer.phase == "active":
                us.reports.accuse(fault, evidence)
        case TrainerNotFinite():
            if trainer.phase == "active":
                _not_finite(us, word, world)
        case TrainerRechecked(_, step, grain, digest):
            us.reports.tell(Rechecked(job, generation, step, grain, digest))
        case TrainerSampled(_, step, position, digest, name):
            us.reports.tell(Sampled(job, generation, step, position, digest, name))
        case TrainerReturned(_, body, index, data):
            place.calls.returned(Returned(job, generation, body, index, data))
        case TrainerCounts(_, body, has, wants, step):
            place.calls.counted(Counted(job, generation, body, has, wants, step))
        case TrainerProves(_, part, digests):
            trainer.proves(generation, part, digests)
            us.reports.report()
        case TrainerStops(_, step, reason):
            trainer.stops(StopAsked(step, reason))
            us.reports.report()
        case TrainerFinished():
            if trainer.phase == "active":
                trainer.finish()
                us.reports.report()
        case _:
            assert_never(word)


def _trains(us: Listener, said: TrainerProgress) -> None:
    progress, place = progress_for_leader(us.reports.job, said), us.place
    us.reports.trains(progress)
    if place is not None and place.settles(progress.committed):
        us.look.again()


def _not_finite(us: Listener, said: TrainerNotFinite, world: World) -> None:
    text = f"the loss of step {said.step} is {said.loss}"
    if said.policy == "restore":
        us.reports.accuse("not_finite", text)
    elif world.members[0] == us.ctx.me:
        # All ranks skip it alike; one of them says so.
        us.ctx.emit(
            "step_skipped",
            f'{text}: it is counted, and its update is left out (on_nan = "skip")',
            us.reports.job,
            world.generation.counter,
            step=said.step,
        )
