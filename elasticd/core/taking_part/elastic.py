"""An elastic trainer with its reducer: the part that a node takes in an elastic job.

    no place ──Form──▶ place ──Freeze, or the trainer's end──▶ no place

What happens to the processes is reported as status and as evidence; what to do about it is the
leader's decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.engines.port import MemberEngine
from elasticd.core.engines.ring import RingMember
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.taking_part import hearing
from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.place import Place
from elasticd.core.taking_part.reports import Reports
from elasticd.core.taking_part.trainers import Trainer, adopted, ending
from elasticd.core.words import effects as e
from elasticd.core.words.children import (
    HaltAt,
    LendState,
    ReleaseTrainer,
    SetInterval,
    TellVerdict,
    ToTrainer,
)
from elasticd.core.words.records import JobRecord, TrainerStatus, World
from elasticd.core.words.shards import Interval
from elasticd.core.words.worlds import (
    Continue,
    Form,
    Formed,
    Freeze,
    Go,
    Halt,
    Hung,
    Lend,
    Prepare,
    Pressed,
    Release,
    ToPart,
    Verdict,
)
from elasticd.recovery.faults import of_reducer
from elasticd.settings.job import JobSpec
from elasticd.types import Tag


@dataclass(slots=True)
class Elastic:
    ctx: Context
    spec: JobSpec
    reports: Reports
    reducers: SpareReducers
    look_again: Callable[[], None]
    """Something may be started now: the member knows whether the job is to run here."""
    crew: Crew
    answers: Answers
    place: Place | None = None
    given_up: int | None = None
    """The reducer that we did not want any more last."""
    fatal: str = ""

    # --- what it is like --------------------------------------------------------------------------

    @property
    def trains(self) -> bool:
        return self.place is not None

    @property
    def formed(self) -> bool:
        return self.place is not None and self.place.formed

    @property
    def ready(self) -> bool:
        place = self.place
        return place is not None and place.complete and not self.reports.faults

    @property
    def hopeless(self) -> bool:
        return self.crew.hopeless

    @property
    def why_none(self) -> str:
        return self.crew.why_none

    @property
    def wants_reducer(self) -> bool:
        """While a world forms, or its first step runs, a starting spare would only take the
        processor from it."""
        return not self.crew.done and (self.place is None or self.place.settled)

    @property
    def is_asked(self) -> bool:
        return self.answers.pending is not None

    def status(self) -> TrainerStatus | None:
        return self.crew.trainer.status() if self.crew.trainer is not None else None

    def reducer(self) -> int | None:
        return self.place.reducer if self.place is not None else None

    def owns(self, child: int) -> bool:
        return self.crew.of(child) is not None or child == self.reducer()

    # --- what it is to do -------------------------------------------------------------------------

    def run(self, record: JobRecord) -> None:
        crew = self.crew
        if crew.trainer is None:
            crew.replace()
            self.reports.report()
        if self.spec.recovery.spare == "none" or record.relief:
            crew.drop_spare("memory is short")
        elif self.place is not None and self.place.settled:
            crew.add_spare()

    def stand_down(self, why: str) -> bool:
        self.crew.drop_spare(why)
        if self.crew.trainer is None:
            self.crew.why_none = why
            return True
        return False

    def discharge(self, why: str) -> None:
        trainer = self.crew.trainer
        if trainer is not None and trainer.phase != "done":
            self.ctx.do(e.KillChild(trainer.child, why, graceful=True))
        self.crew.trainer = self.answers.answerer = None

    def end(self, why: str) -> None:
        self.crew.end(why)
        self._leave(why)
        self.answers.pending = None

    def new_view(self) -> None:
        self.answers.pending = None

    def suspend(self, why: str) -> None:
        self.answers.pending = None
        if self.place is None:
            return
        self.reports.faults.append(("link_lost", why))
        self._leave(why)
        self.answers.answerer = None
        trainer = self.crew.trainer
        if trainer is not None and trainer.phase in ("active", "finished"):
            self.answers.freeze(trainer)

    def _leave(self, why: str) -> None:
        """Drop the place; its reducer has nothing worth keeping."""
        place, self.place = self.place, None
        if place is not None and place.reducer is not None:
            self.ctx.do(e.KillChild(place.reducer, why))
            self.given_up = place.reducer

    # --- children of the daemon before ------------------------------------------------------------

    def adopt(
        self, trainers: Sequence[AdoptedTrainer], reducers: Sequence[AdoptedReducer]
    ) -> set[int]:
        world = self.reports.world
        now = world.generation if world is not None else None

        def merit(one: AdoptedTrainer) -> tuple[bool, bool, bool]:
            return one.said.generation == now is not None, one.used, not one.left.spare

        first, *others = [*sorted(trainers, key=merit, reverse=True), None]
        if first is None:
            return set()
        self.crew.trainer = trainer = adopted(first)
        self.answers.serial = first.said.serial
        kept = {first.left.child}
        if merit(first)[0] and world is not None and self.ctx.me in world.members:
            kept |= self._adopt_place(world, trainer, reducers)
        if (second := others[0]) is not None and not second.used:
            self.crew.spare = adopted(second)
            kept.add(second.left.child)
        if trainer.phase == "waiting":
            self.crew.run(trainer)
        return kept

    def _adopt_place(
        self, world: World, trainer: Trainer, reducers: Sequence[AdoptedReducer]
    ) -> set[int]:
        """The trainer is in the newest world that we know of; and the reducer, if it lives."""
        has_state = trainer.entered == world.generation
        self.place = place = self._place(world, trainer, has_state)
        engine = place.engine
        for reducer in reducers:
            if engine is not None and reducer.serves(world.generation):
                engine.adopt(reducer.left.child, reducer.said.formed)
                self.reducers.pids[reducer.left.child] = reducer.left.pid
                return {reducer.left.child}
        if engine is not None:
            self.accuse("reducer_gone", "its reducer ended while its daemon was away")
        return set()

    def _place(self, world: World, trainer: Trainer, has_state: bool) -> Place:
        rank, engine = world.members.index(self.ctx.me), None
        if len(world.members) > 1:
            deadline = self.ctx.now + self.ctx.timing.form_seconds
            engine = RingMember(self.ctx, self.reducers, self.reports.tell, world, rank, deadline)
        return Place(world, rank, trainer, engine, has_state)

    # --- the leader's orders ----------------------------------------------------------------------

    def on_freeze(self, freeze: Freeze) -> None:
        self._leave("the leader froze the generation")
        self.answers.on_freeze(freeze, self.crew.trainer)
        self.answer()

    def answer(self) -> None:
        """Answer a freeze once the trainer has said what it holds and a warm reducer is there."""
        holding = self.answers.ready(self.reducers.host(), self.crew.trainer)
        if holding is not None:
            self.reports.tell(holding)

    def on_form(self, form: Form) -> None:
        world, trainer, newest = form.world, self.crew.trainer, self.reports.world
        self.ctx.saw(world.generation.counter)
        overtaken = newest is not None and newest.generation >= world.generation
        if self.ctx.me not in world.members or overtaken:
            return
        if trainer is None or trainer.child != self.answers.answerer:
            # The leader counted on a trainer that has died since; it is being told.
            self.ctx.log("info", "no trainer for this world", generation=str(world.generation))
            return
        self._enter(world, trainer)

    def _enter(self, world: World, trainer: Trainer) -> None:
        self.ctx.persist("world", world)
        self.ctx.hear(world.job, world.generation)
        self.reports.enter(world)
        self.given_up = self.answers.answerer = None
        trainer.phase = "active"
        if not trainer.judged:
            trainer.probe = None
        source = world.sources[world.members.index(self.ctx.me)]
        self.place = place = self._place(world, trainer, source in ("keep", "init"))
        if place.has_state:
            trainer.entered = world.generation
        self.reports.report()
        if place.engine is not None and not place.engine.take():
            self.accuse("reducer_lost", "the warm reducer died before the world formed")
            return
        self.ctx.do(e.EnterWorld(trainer.child, place.reducer, world, place.rank))
        if not place.has_state:
            self.ctx.do(e.FetchState(trainer.child, world, place.takes_from(self.answers.held)))
        if place.engine is not None:
            place.engine.begin()
        place.tell_if_ready(self.reports.tell)
        if trouble := self.trouble():
            self.accuse("link_lost", trouble)

    def on_order(self, order: ToPart) -> None:
        trainer, place = self.crew.trainer, self.place
        match order:
            case Prepare():
                if refusal := self.answers.on_prepare(order, trainer):
                    self.reports.tell(refusal)
                return
            case Release():
                self._release()
                return
        if place is None or trainer is None or place.generation != order.generation:
            return
        match order:
            case Go() | Continue():
                if place.engine is not None:
                    place.engine.on_word(order)
            case Formed():
                place.formed = True
                self.reports.report()
            case Verdict(_, generation, exact, reason):
                if not trainer.judged:
                    trainer.judged = True
                    self._say(trainer, TellVerdict(generation, exact, reason))
                    self.reports.report()
            case Hung(_, _, why, seconds):
                self.crew.kill_hung(why, seconds)
            case Lend(_, generation, step, log):
                self._say(trainer, LendState(generation, step, log))
            case Halt(_, generation, step):
                self._say(trainer, HaltAt(generation, step))
            case Interval(_, generation, every, step):
                self._say(trainer, SetInterval(generation, every, step))
            case _:
                assert_never(order)

    def _say(self, trainer: Trainer, word: ToTrainer) -> None:
        self.ctx.do(e.TellTrainer(trainer.child, word))

    def _release(self) -> None:
        """The final checkpoint is consistent; whoever has committed the last step may leave."""
        trainer = self.crew.trainer
        if trainer is not None and trainer.phase == "finished":
            trainer.phase, self.answers.answerer = "released", None
            self.crew.drop_spare("the job is done", graceful=True)
            self._say(trainer, ReleaseTrainer())
            self.reports.report()

    # --- what happens to it -----------------------------------------------------------------------

    def accuse(
        self,
        fault: str,
        evidence: str,
        *,
        fatal: str = "",
        status: int | None = None,
        age_seconds: float = 0.0,
        confidence: str = "",
    ) -> None:
        """Tell the leader what happened here."""
        self.reports.accuse(
            fault,
            evidence,
            kept=self.place is not None,
            fatal=fatal,
            status=status,
            age_seconds=age_seconds,
            confidence=confidence,
        )

    def trouble(self) -> str:
        place = self.place
        if place is None or place.engine is None or self.reports.faults:
            return ""
        return place.engine.trouble()

    def on_child(self, event: e.OfChild) -> None:
        engine = self.place.engine if self.place is not None else None
        if engine is not None and event.child == engine.child:
            self._on_reducer(engine, event)
        elif (trainer := self.crew.of(event.child)) is not None:
            self._on_trainer(trainer, event)

    def _on_reducer(self, engine: MemberEngine, event: e.OfChild) -> None:
        match event:
            case e.ChildStarted():
                self.reports.report()
            case e.ReducerListens():
                engine.on_listens()
            case e.ChildSaid(_, word):
                hearing.reducer_says(self, engine, word)
            case e.ChildStopped(_, seconds):
                if engine.stands_still() and not self.crew.left_the_loop:
                    text = f"its reducer was stopped (SIGSTOP) for {seconds:.1f} s"
                    self.accuse("hang", text, age_seconds=seconds)
            case e.ChildExited(_, status):
                engine.ended()
                self._reducer_ended(status)
            case _:
                assert_never(event)

    def _on_trainer(self, trainer: Trainer, event: e.OfChild) -> None:
        match event:
            case e.ChildStarted(_, pid):
                trainer.pid = pid
                self.reports.report()
            case e.ChildSaid(_, word):
                hearing.trainer_says(self, trainer, word)
            case e.ChildStopped(_, seconds):
                self.crew.kill_stopped(trainer, seconds)
            case e.ChildExited(_, status, tail) if trainer is self.crew.spare:
                if self.crew.spare_ended(status, tail):
                    self.look_again()
            case e.ChildExited():
                self._trainer_exited(trainer, event)
            case e.ReducerListens():
                pass
            case _:
                assert_never(event)

    def on_found_dead(self, child: int, status: int | None) -> None:
        """The leader may know by now that the ring broke, but not that it was here."""
        if child == self.given_up:
            self._reducer_ended(status)

    def _reducer_ended(self, status: int | None) -> None:
        if not self.crew.left_the_loop:
            self.accuse(of_reducer(status), f"reducer ended with {_status(status)}")

    def _trainer_exited(self, trainer: Trainer, event: e.ChildExited) -> None:
        status = event.status
        if status == 0 and trainer.phase == "released":
            trainer.phase = "done"
            self._leave("the trainer is done")
            self.reports.report()
            return
        end = ending(trainer, status, event.tail, event.memory)
        if trainer.phase in ("starting", "waiting"):
            self.crew.false_starts += 1
        self.crew.trainer, self.fatal = None, end.fatal or self.fatal
        age = self.ctx.now - trainer.hung_since if trainer.hung else 0.0
        self.accuse(
            end.fault,
            end.evidence,
            fatal=end.fatal,
            status=status,
            age_seconds=age,
            confidence=end.confidence,
        )
        self._leave("its trainer ended")
        self.answers.trainer_ended()
        if end.fatal:
            self.reports.report()
        else:
            self.look_again()
            self.answer()

    def on_reducer_ready(self) -> None:
        self.answer()
        self.reports.report()

    def on_pressure(self, reason: str, left_bytes: int) -> None:
        why = self.crew.on_pressure(reason, left_bytes)
        if why and self.place is not None:
            self.crew.tell_of_pressure(f"{why}: it asks the job to need less")
            self.reports.tell(Pressed(self.reports.job, self.place.generation, why))

    def on_state_failed(self, generation: Tag, reason: str) -> None:
        if self.place is not None and self.place.generation == generation:
            self.accuse("state_unavailable", reason)

    def on_prepare_failed(self, serial: int, reason: str) -> None:
        if done := self.answers.prepared(serial, None, reason):
            self.reports.tell(done)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, let_go: bool) -> None:
        if self.answers.overdue():
            seconds = self.ctx.timing.holding_seconds
            why = f"its trainer did not say what it holds for {seconds:g} s"
            self.crew.kill_hung(why, seconds)
        engine = self.place.engine if self.place is not None else None
        if engine is not None and self.ctx.now >= self._ring_deadline():
            self.accuse("hang", engine.overdue())
        if self.crew.due(let_go):
            self.look_again()

    def _ring_deadline(self) -> float:
        """When the ring of our place must be up; a ring against which something speaks, never."""
        return inf if self.place is None or self.reports.faults else self.place.ring_deadline

    def deadlines(self, let_go: bool) -> list[float]:
        times = [*self.answers.deadlines(), *self.crew.deadlines(let_go)]
        ring = self._ring_deadline()
        return [*times, ring] if ring < inf else times


def _status(status: int | None) -> str:
    if status is None:
        return "a status that is not known"
    return f"exit status {status}" if status >= 0 else f"signal {-status}"
