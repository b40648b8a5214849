"""A trainer's place in a world: made when the leader forms it, dropped when it is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.engines.port import Broken, MemberEngine
from elasticd.core.taking_part.adoption import AdoptedReducer
from elasticd.core.taking_part.calling import CallReports
from elasticd.core.taking_part.reports import Reports
from elasticd.core.taking_part.trainers import Trainer, kill_hung
from elasticd.core.words import effects as e
from elasticd.core.words.effects import FromChild
from elasticd.core.words.engines import EngineEvent, EngineToMember
from elasticd.core.words.records import Wanted, World
from elasticd.core.words.reducers import ReducerBroken, ReducerFormed, ReducerHere, ReducerWarm
from elasticd.core.words.shards import Interval
from elasticd.core.words.trainers import (
    HaltAt,
    LendState,
    SetInterval,
    TellAgreed,
    TellProven,
    TellResult,
    TellVerdict,
    ToTrainer,
)
from elasticd.core.words.worlds import (
    Agreed,
    CallResult,
    Formed,
    Halt,
    Hung,
    Lend,
    OfPlace,
    Proven,
    Ready,
    Verdict,
)
from elasticd.recovery.faults import of_reducer
from elasticd.types import Confidence, NodeId, Point, Sign, Tag


@dataclass(slots=True)
class Place:
    ctx: Context
    reports: Reports
    world: World
    rank: int
    trainer: Trainer
    engine: MemberEngine | None
    """None in a world of one."""
    has_state: bool
    formed: bool = False
    """The leader has said that all members are ready."""
    settled: bool = False
    """A step is committed in this world: spares may take the processor from training now."""
    calls: CallReports = field(init=False)

    def __post_init__(self) -> None:
        self.calls = CallReports(self.reports.tell)

    def adopt(self, reducer: AdoptedReducer | None) -> set[int]:
        """Go on with the reducer that a daemon before this one has told to join our group."""
        if self.engine is None:
            return set()
        if reducer is None:
            self.reports.accuse("reducer_gone", "its reducer ended while its daemon was away")
            return set()
        self.engine.adopt(reducer.left.child, reducer.left.pid, reducer.said.formed)
        return {reducer.left.child}

    @property
    def generation(self) -> Tag:
        return self.world.generation

    @property
    def reducer(self) -> int | None:
        """The process that does the collectives."""
        return self.engine.child if self.engine is not None else None

    @property
    def wants_reducer(self) -> bool:
        """Whether the next world's may be started. While a world forms, or its first step runs, it
        would only take the processor from it, unless ours has ended."""
        return self.settled or (self.engine is not None and self.engine.child is None)

    @property
    def _complete(self) -> bool:
        """Reducer in the group, trainer in the world's state."""
        return self.has_state and (self.engine is None or self.engine.up)

    @property
    def ready(self) -> bool:
        """The next step could be taken: nothing speaks against the node."""
        return self._complete and not self.reports.faults

    def tell_if_ready(self) -> None:
        """Tell the leader, if the reducer is in the group and the state in place."""
        if self._complete:
            self.reports.tell(Ready(self.world.job, self.generation))

    def loaded(self) -> None:
        """The trainer has the state from which the world starts."""
        self.has_state = True
        self.trainer.has_state(self.generation)
        self.tell_if_ready()

    def settles(self, committed: int) -> bool:
        """Whether the world's first step is committed, just now."""
        news = not self.settled and committed > self.world.step
        self.settled = self.settled or news
        return news

    def takes_from(self, held: Point | None) -> Wanted | None:
        """Where the state is that the trainer lacks, which holds ``held``; None: in the world's
        checkpoint."""
        world = self.world
        kind, _, holder = world.sources[self.rank].partition(":")
        if kind == "checkpoint":
            return None
        point = Point(world.lineage, world.step, world.stamp)
        if kind == "updates":
            return Wanted(point, (NodeId(holder),), held)
        if world.step == 0 or world.whole:
            # Parts of several would be nobody's state. Of the first one not all may have what the
            # script makes above its loop.
            return Wanted(point, (NodeId(holder),))
        named = world.members.index(NodeId(holder))
        order = [*range(named, len(world.members)), *range(named)]
        keep = [world.members[r] for r in order if r == named or world.sources[r] == "keep"]
        return Wanted(point, tuple(keep))

    # --- the leader's orders ----------------------------------------------------------------------

    def obey(self, order: OfPlace) -> None:
        """The leader of this world speaks."""
        if isinstance(order, EngineToMember):
            if self.engine is not None:
                self.engine.on_word(order)
            return
        match order:
            case Formed():
                self.formed = True
                self.reports.formed(self.world)
                self.reports.report()
            case Verdict(_, generation, exact, reason):
                if not self.trainer.judged:
                    self.trainer.judge()
                    self._say(TellVerdict(generation, exact, reason))
                    self.reports.report()
            case Proven(_, generation, part):
                self.trainer.proven(generation, part)
                self._say(TellProven(generation, part))
            case Hung(_, _, why, seconds):
                kill_hung(self.ctx, self.trainer, why, seconds)
            case Lend(_, generation, step, log):
                self._say(LendState(generation, step, log))
            case Halt(_, generation, step):
                self._say(HaltAt(generation, step))
            case CallResult(_, generation, body, index, data):
                self._say(TellResult(generation, body, index, data))
            case Agreed(_, generation, body, count):
                self._say(TellAgreed(generation, body, count))
            case Interval(_, generation, every, step):
                self._say(SetInterval(generation, every, step))
            case _:
                assert_never(order)

    def _say(self, word: ToTrainer) -> None:
        self.ctx.do(e.TellTrainer(self.trainer.child, word))

    # --- the reducer ------------------------------------------------------------------------------

    def on_engine(self, event: EngineEvent) -> None:
        """The engine's process has come so far."""
        assert self.engine is not None
        if (broken := self.engine.on_event(event)) is not None and not self.engine.up:
            self._accuse("ring_broken", broken)

    def on_reducer(self, event: e.OfChild) -> None:
        """What our reducer does."""
        assert self.engine is not None
        match event:
            case e.ChildStarted():
                self.reports.report()
            case e.ChildSaid(_, word):
                self._reducer_says(self.engine, word)
            case e.ChildStopped(_, seconds):
                why = self.engine.on_stopped(seconds)
                if why and not self.trainer.left_the_loop:
                    self.reports.accuse("hang", why, age_seconds=seconds)
            case e.ChildExited(_, status):
                self.engine.ended()
                if not self.trainer.left_the_loop:
                    self.reports.accuse(of_reducer(status), reducer_end(status))
            case _:
                assert_never(event)

    def _reducer_says(self, engine: MemberEngine, word: FromChild) -> None:
        if not isinstance(word, ReducerWarm | ReducerHere | ReducerFormed | ReducerBroken):
            self.ctx.log("warning", "a reducer said what no reducer says", kind=word.kind)
            return
        was_up, broken = engine.up, engine.on_said(word)
        if broken is not None and not self.trainer.left_the_loop:
            self._accuse("ring_broken", broken)
        if engine.up and not was_up:
            self.tell_if_ready()

    def _accuse(self, fault: Sign, broken: Broken) -> None:
        at = broken.stranger_at
        sure: Confidence = "likely" if broken.wrong else ""
        fault = "ring_broken" if at >= 0 else fault
        self.reports.accuse(fault, broken.text, confidence=sure, stranger_at=at)

    def trouble(self) -> str:
        """Why the engine can't go on although nothing has broken, or nothing."""
        if self.engine is None or self.reports.faults:
            return ""
        return self.engine.trouble()

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        if self.engine is not None and any(self.ctx.now >= time for time in self.deadlines()):
            self._accuse("hang", self.engine.overdue())

    def deadlines(self) -> list[float]:
        engine = self.engine
        if engine is None or engine.up or self.reports.faults:
            return []
        return [engine.deadline]


def reducer_end(status: int | None) -> str:
    """How a reducer ended, for people."""
    if status is None:
        return "reducer ended with a status that is not known"
    end = f"exit status {status}" if status >= 0 else f"signal {-status}"
    return f"reducer ended with {end}"
