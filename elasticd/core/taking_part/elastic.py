"""An elastic trainer with its reducer: the part that a node takes in an elastic job.

    no place ──Form──▶ place ──Freeze, or the trainer's end──▶ no place

What happens to the processes is reported as status and as evidence; what to do about it is the
leader's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.engines.backends import member_engine
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.taking_part import hearing
from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.looking import SecondLook
from elasticd.core.taking_part.place import Place, reducer_end
from elasticd.core.taking_part.reports import Reports
from elasticd.core.taking_part.takeover import take_over
from elasticd.core.taking_part.trainers import Trainer, ending, kill_hung
from elasticd.core.words import effects as e
from elasticd.core.words.engines import EngineEvent
from elasticd.core.words.records import JobRecord, TrainerStatus
from elasticd.core.words.trainers import ReleaseTrainer
from elasticd.core.words.worlds import (
    Counted,
    Failing,
    Form,
    Freeze,
    Prepare,
    Pressed,
    Release,
    Returned,
    ToPart,
)
from elasticd.recovery.faults import of_reducer
from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.settings.job import JobSpec
from elasticd.types import Tag


@dataclass(slots=True)
class Elastic:
    ctx: Context
    spec: JobSpec
    reports: Reports
    reducers: SpareReducers
    look: SecondLook
    crew: Crew
    answers: Answers
    place: Place | None = None
    given_up: int | None = None
    """The reducer that we did not want any more last."""
    fatal: str = ""
    failing: Failing | None = None

    # --- what it is like --------------------------------------------------------------------------

    @property
    def trains(self) -> bool:
        return self.place is not None

    @property
    def formed(self) -> bool:
        return self.place is not None and self.place.formed

    @property
    def ready(self) -> bool:
        return self.place is not None and self.place.ready

    @property
    def hopeless(self) -> bool:
        return self.crew.hopeless

    @property
    def why_none(self) -> str:
        return self.crew.why_none

    @property
    def wants_reducer(self) -> bool:
        return not self.crew.done and (self.place is None or self.place.wants_reducer)

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
        return self.crew.stand_down(why)

    def discharge(self, why: str) -> None:
        self.crew.discharge(why)
        self._leave(why)
        self.answers.expire()

    def renew(self, why: str) -> None:
        failed, self.failing = self.failing is not None, None
        if self.place is None or failed:
            self.crew.renew(why)
            self._without_trainer(why)

    def replace(self, why: str) -> None:
        """Our trainer is of no more use, and a new one is."""
        self.crew.discharge(why)
        self._without_trainer(why)
        self.look.again()

    def _without_trainer(self, why: str) -> None:
        self._leave(why)
        self.answers.trainer_ended()
        self.answer()

    def fails(self, failing: Failing) -> None:
        self.failing = self.failing or failing

    def end(self, why: str) -> None:
        self.crew.end(why)
        self._leave(why)
        self.answers.void()

    def new_view(self) -> None:
        self.answers.void()

    def calls(self) -> list[Returned | Counted]:
        return self.place.calls.all() if self.place is not None else []

    def suspend(self, why: str) -> None:
        self.answers.void()
        if self.place is None:
            return
        self.reports.note("link_lost", why)
        self._leave(why)
        self.answers.expire()
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
        return take_over(self, trainers, reducers)

    # --- the leader's orders ----------------------------------------------------------------------

    def on_freeze(self, freeze: Freeze) -> None:
        self._leave("the leader froze the generation")
        self.answers.on_freeze(freeze, self.crew.trainer)
        self.answer()

    def answer(self) -> None:
        """Answer a freeze once the trainer has said what it holds and a warm reducer is there. Not
        while a spare may be about to take the trainer's place."""
        if self.look.due:
            return
        if holding := self.answers.ready(self.reducers.warm(), self.crew.trainer):
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
        else:
            self._enter(form, trainer)

    def _enter(self, form: Form, trainer: Trainer) -> None:
        world = form.world
        self.ctx.persist("world", world)
        self.ctx.hear(world.job, world.generation)
        self.reports.enter(world, another=trainer.entered is None)
        self.given_up = None
        self.answers.expire()
        trainer.enter()
        self.place = place = self.place_in(form, trainer, self.ctx.me not in world.takers)
        if place.has_state:
            trainer.has_state(world.generation)
        self.reports.report()
        if place.engine is not None and (lost := place.engine.claim()):
            self.reports.accuse("reducer_lost", lost)
            return
        self.ctx.do(e.EnterWorld(trainer.child, place.reducer, world, place.rank))
        if not place.has_state:
            self.ctx.do(e.FetchState(trainer.child, world, place.takes_from(self.answers.held)))
        if place.engine is not None:
            place.engine.come_up()
        place.tell_if_ready()
        if trouble := place.trouble():
            self.reports.accuse("link_lost", trouble)

    def place_in(self, form: Form, trainer: Trainer, has_state: bool) -> Place:
        """Where ``trainer`` takes part in a world."""
        world, tell = form.world, self.reports.tell
        engine = member_engine(self.spec.world, self.ctx, self.reducers, tell, world, form.secret)
        rank = world.members.index(self.ctx.me)
        return Place(self.ctx, self.reports, world, rank, trainer, engine, has_state)

    def on_order(self, order: ToPart) -> None:
        place = self.place
        if isinstance(order, Prepare):
            if refusal := self.answers.on_prepare(order, self.crew.trainer):
                self.reports.tell(refusal)
        elif isinstance(order, Release):
            self._release()
        elif place is not None and place.generation == order.generation:
            place.obey(order)

    def _release(self) -> None:
        """The final checkpoint is consistent; whoever has committed the last step may leave."""
        trainer = self.crew.trainer
        if trainer is not None and trainer.phase == "finished":
            trainer.release()
            self.answers.expire()
            self.crew.drop_spare("the job is done", graceful=True)
            self.ctx.do(e.TellTrainer(trainer.child, ReleaseTrainer()))
            self.reports.report()

    # --- what happens to it -----------------------------------------------------------------------

    def trouble(self) -> str:
        return self.place.trouble() if self.place is not None else ""

    def on_child(self, event: e.OfChild) -> None:
        place = self.place
        if place is not None and event.child == place.reducer:
            place.on_reducer(event)
        elif (trainer := self.crew.of(event.child)) is not None:
            self._on_trainer(trainer, event)

    def on_engine(self, event: EngineEvent) -> None:
        if self.place is not None and event.child == self.place.reducer:
            self.place.on_engine(event)

    def _on_trainer(self, trainer: Trainer, event: e.OfChild) -> None:
        match event:
            case e.ChildStarted(_, pid):
                trainer.started(pid)
                self.reports.report()
            case e.ChildSaid(_, word):
                hearing.trainer_says(self, trainer, word)
            case e.ChildStopped(_, seconds):
                self.crew.kill_stopped(trainer, seconds)
            case e.ChildExited(_, status, tail) if trainer is self.crew.spare:
                if self.crew.spare_ended(status, tail):
                    self.look.again()
            case e.ChildExited():
                self._trainer_exited(trainer, event)
            case _:
                assert_never(event)

    def on_found_dead(self, child: int, status: int | None) -> None:
        """The leader may know by now that the ring broke, but not that it was here."""
        if child == self.given_up and not self.crew.left_the_loop:
            fault = of_reducer(status)
            self.reports.accuse(fault, reducer_end(status), kept=self.trains)

    def _trainer_exited(self, trainer: Trainer, event: e.ChildExited) -> None:
        if event.status == 0 and trainer.phase == "released":
            trainer.done()
            self._leave("the trainer is done")
            self.reports.report()
            return
        end = ending(trainer, event, self.ctx.now, self.crew.gpu)
        self.crew.trainer_ended(end.evidence)
        self.fatal = end.fatal or self.fatal
        self.failing = self.failing or end.failing
        self.reports.ended(end, kept=self.trains)
        self._leave("its trainer ended")
        self.answers.trainer_ended()
        if self.fatal or self.failing is not None:
            self.reports.report()
        else:
            self.look.again()

    def on_reducer_ready(self) -> None:
        self.answer()
        self.reports.report()

    def on_pressure(self, reason: str, left_bytes: int, *, mild: bool = False) -> None:
        self.crew.on_pressure(reason, left_bytes, mild=mild)
        why, place = self.crew.needs_less, self.place
        # Asked at each sign until it does: who was asked before may be gone.
        if why and place is not None and place.world.relief < RECOMPUTE_LEVEL:
            self.reports.tell(Pressed(self.reports.job, place.generation, why))

    def on_state_failed(self, generation: Tag, reason: str) -> None:
        if self.place is not None and self.place.generation == generation:
            self.reports.accuse("state_unavailable", reason)

    def on_prepare_failed(self, serial: int, reason: str) -> None:
        if done := self.answers.prepared(serial, None, reason):
            self.reports.tell(done)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, let_go: bool) -> None:
        if self.answers.overdue():
            seconds = self.ctx.timing.holding_seconds
            why = f"its trainer did not say what it holds for {seconds:g} s"
            if self.crew.trainer is not None:
                kill_hung(self.ctx, self.crew.trainer, why, seconds)
        if self.place is not None:
            self.place.tick()
        if self.crew.due(let_go):
            self.look.again()

    def deadlines(self, let_go: bool) -> list[float]:
        placed = self.place.deadlines() if self.place is not None else []
        return [*self.answers.deadlines(), *self.crew.deadlines(let_go), *placed]
