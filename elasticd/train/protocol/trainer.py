"""Which world a trainer is in, what it holds, and what it says of that.

Two sides drive it: the daemon, whose words it :meth:`~TrainerProtocol.hear`, and the training
thread, which calls everything else. Each call may leave effects, which the driver takes with
:meth:`~TrainerProtocol.effects` and performs in order, before the next call. One call at a time: in
production a lock sees to that. There are no threads, clocks or descriptors in here, so the
simulator drives the very same object.

The states that matter, and what leads from one to another::

                    take
    outside a world ────► in a world           LeaveWorld: freeze, a newer world,
          ▲                    │               a lost reducer, oom, refuse …
          └────────────────────┘

               begin_update, begin_preparing
    readable ────────────────────────────────► updating
        ▲                                          │
        └──────────── end_update, then hold ───────┘

- A world is entered by :meth:`~TrainerProtocol.take`. Once it is left nothing of it can be used:
  every call that needs it raises ``GenerationLost``.
- :meth:`~TrainerProtocol.begin_update` decides between an update and a freeze. Whoever comes first
  wins: a reduced gradient that comes after the freeze is dropped, a freeze that comes after the
  update has begun is answered when the update is done. So the point that was answered never
  changes until the next world, or until a state that was asked for later is delivered.
- A state may be read from the moment that it is held until the next update begins. A request that
  comes between waits.
- No progress is told of a world before its state is in place: what was committed elsewhere is not
  committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, assert_never

from elasticd.core.words import trainers as w
from elasticd.core.words.processes import Alive
from elasticd.errors import GenerationLost
from elasticd.train.protocol.arrivals import Arrivals
from elasticd.train.protocol.calls import Calls
from elasticd.train.protocol.effects import (
    Cargo,
    Effect,
    LeaveWorld,
    TellProgress,
)
from elasticd.train.protocol.lending import Request, S, U
from elasticd.train.protocol.newcomers import joins
from elasticd.train.protocol.sharing import Sharing, StateInPlace
from elasticd.train.protocol.visits import Visits
from elasticd.train.protocol.voice import Voice
from elasticd.train.world import TrainerWorld
from elasticd.types import NanCure, Point, ScriptFault, Tag, WorkPhase


@dataclass(frozen=True, slots=True)
class Figures:
    """What is shown of the work, beside the step."""

    phase: WorkPhase
    loss: float | None
    loss_step: int
    """The step that this was the loss of."""
    steps_per_second: float | None
    memory_bytes: int
    metrics: Mapping[str, float | str]
    grain_seconds: float
    update_seconds: float
    reduce_seconds: float
    active_bytes: int = 0
    cached_bytes: int = 0
    peak_bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What the time of a step goes to, by part."""
    named: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """What the script gave to ``run.log``, each with its step."""

    def told(
        self, generation: Tag, point: Point, committed: int | None, begun: bool
    ) -> w.TrainerProgress:
        """The word for them."""
        return w.TrainerProgress(
            generation=generation,
            step=point.step,
            stamp=point.stamp,
            committed=committed,
            loss=self.loss if self.loss_step == point.step else None,
            phase=self.phase,
            steps_per_second=self.steps_per_second,
            memory_bytes=self.memory_bytes,
            metrics=dict(self.metrics),
            grain_seconds=self.grain_seconds,
            update_seconds=self.update_seconds,
            reduce_seconds=self.reduce_seconds,
            begun=begun,
            active_bytes=self.active_bytes,
            cached_bytes=self.cached_bytes,
            peak_bytes=self.peak_bytes,
            seconds=dict(self.seconds),
            named=dict(self.named),
        )


class TrainerProtocol(Generic[S, U]):
    """``S`` is what the driver has as a state, ``U`` as an update."""

    def __init__(self) -> None:
        self.held: StateInPlace[S] = StateInPlace()
        self.arrivals = Arrivals()
        self.may_run = self.released = False
        self.visits = Visits()
        self._voice = Voice()
        self._sharing: Sharing[S, U] = Sharing(self._voice, self.held)
        self.calls = Calls(self._voice, self.arrivals)
        self._frozen, self._short = 0, False

    def effects(self) -> list[Effect]:
        """What is to be done since the last call."""
        return self._voice.taken()

    def say(self, word: w.FromTrainer) -> None:
        """Say what nothing else here depends on."""
        self._voice.say(word)

    # --- the daemon -------------------------------------------------------------------------------

    def hear(self, word: w.ToTrainer, cargo: Cargo = None) -> None:
        """Take in what the daemon says."""
        match word:
            case w.FreezeTrainer(serial):
                self._freeze(serial)
            case w.GiveWorld():
                self._offer(TrainerWorld.as_given(word), cargo)
            case w.LoadState():
                self._voice.drop(self.arrivals.bring(word, cargo))
            case w.TakeState():
                self._deliver(word, cargo)
            case w.LendState(generation):
                if (world := self.visits.world_of(generation)) is not None:
                    self._sharing.order(world, word)
            case w.ExportState(serial, step, stamp, since, part, parts):
                self._sharing.ask(Request(serial, step, stamp, since, part, parts))
            case w.TellVerdict():
                self.visits.hear(word, self.held.at)
                self._voice.retold.judged()
            case w.TellProven(_, part):
                if self.visits.hear(word, self.held.at):
                    self.held.unproven &= part != "body"
                self._voice.retold.proven(part)
            case w.SetInterval() | w.HaltAt():
                self.visits.hear(word, self.held.at)
            case w.TellResult() | w.TellAgreed():
                self.calls.hear(word)
            case w.ReleaseTrainer():
                self.released = self.calls.over = True
                self._voice.retold.released()
            case w.RunScript():
                self.may_run = True
            case w.TrimMemory() | w.StrainMemory() | Alive():
                pass  # the driver's
            case _:
                assert_never(word)

    def introduce(self, figures: Figures) -> list[w.FromTrainer]:
        """The first words to a daemon that was restarted: what the old one had not heard, too."""
        self.held.freezes = ()
        self._sharing.forget_requests()
        return self._voice.retold.again(self.calls.again(), self.progress(figures))

    def _freeze(self, serial: int) -> None:
        self._leave()
        self._frozen = serial
        self.calls.leave()
        self._voice.retold.frozen()
        self._voice.retold.asked(serial)
        self._voice.drop(self.arrivals.freeze())
        if self.held.updating:
            self.held.freezes = (*self.held.freezes, serial)
        else:
            self._answer_freeze(serial)

    def _answer_freeze(self, serial: int) -> None:
        held = self.held.told(serial, tuple(self._sharing.lending.starts))
        self.say(self.calls.told(held, complete=self.held.complete))

    def _offer(self, world: TrainerWorld, cargo: Cargo) -> None:
        self._leave()
        self._voice.drop(self.arrivals.offer(world, cargo))
        self._voice.retold.given(world.generation, world.state != "load")
        self.calls.enter(world)

    def _deliver(self, word: w.TakeState, cargo: Cargo) -> None:
        self._voice.retold.asked(word.serial)
        late = word.serial < self._frozen  # what we hold was told since, and must not change
        self._voice.drop([cargo] if late else self.arrivals.deliver(word, cargo))

    # --- the training thread: worlds --------------------------------------------------------------

    @property
    def world(self) -> TrainerWorld | None:
        """The one that the trainer is in."""
        return self.visits.world

    def current(self) -> TrainerWorld:
        """The same, or GenerationLost: it has ended."""
        return self.visits.current()

    def _leave(self) -> TrainerWorld | None:
        """Which one it was."""
        left = self.visits.leave()
        if left is not None:
            self._voice.do(LeaveWorld())
        return left

    @property
    def is_called(self) -> bool:
        """Whether :meth:`take` has something to give."""
        return self.arrivals.waiting or self.released

    def take(self) -> tuple[TrainerWorld | w.TakeState, Cargo] | None:
        """What comes next, with its cargo: a world, which is entered, or a state to be taken before
        there is one. None: the job was released."""
        taken = self.arrivals.take_world()
        if taken is None:
            return self.arrivals.take_delivery()
        world, _ = taken
        self.visits.enter(world)
        self._short = world.relief > 0
        began = world.point.step if self.held.began is None else self.held.began
        self.say(w.TrainerCame(world.generation, began))
        return taken

    def state_came(self, generation: Tag) -> bool:
        """Whether there is an end to the wait for the state of this world."""
        return self.visits.visit is None or self.arrivals.brought(generation)

    def take_state(self) -> tuple[w.LoadState, Cargo]:
        """What :meth:`state_came` told of; or GenerationLost."""
        self.current()
        return self.arrivals.take_state()

    def spoilt(self, reason: str) -> None:
        """The files are; better ones are to come; or GenerationLost."""
        self.say(w.TrainerSpoilt(self.current().generation, reason))

    def unloaded(self, reason: str, *, spent: bool = False) -> None:
        if (world := self._leave()) is not None:
            self.say(w.TrainerUnloaded(world.generation, reason, spent))

    def refuse(self, reason: str, *, unfit: bool = False, looping: bool = False) -> None:
        self.say(w.TrainerRefused(reason, unfit, looping))
        self._leave()

    def out_of_memory(self, evidence: str) -> None:
        if (world := self._leave()) is not None:
            self.say(w.TrainerOutOfMemory(world.generation, evidence))

    def lose_script(self, fault: ScriptFault, evidence: str) -> None:
        """A plain job's script is to begin anew on all ranks."""
        if (world := self._leave()) is not None:
            self.say(w.TrainerLostScript(world.generation, fault, evidence))

    def lose_reducer(self, evidence: str) -> None:
        if (world := self._leave()) is not None:
            self.say(w.TrainerLostReducer(world.generation, evidence))

    def not_finite(self, step: int, loss: str, policy: NanCure) -> None:
        """Raises GenerationLost where the policy is to restore, or the world has ended."""
        self.say(w.TrainerNotFinite(self.current().generation, step, loss, policy))
        if policy == "restore":
            self._leave()
            raise GenerationLost(f"the loss of step {step} is {loss}")

    # --- the training thread: states --------------------------------------------------------------

    def adopt(self, point: Point) -> None:
        """The state in place is that of ``point``, from which the world starts; or
        GenerationLost."""
        self.current()
        self.held.move(point)
        self._settle()

    def _settle(self) -> None:
        visit = self.visits.visit
        if visit is not None and visit.settles():
            self.calls.settled()
            self.held.unproven = joins(visit.world)
        self._voice.do(TellProgress())

    def hold(self, readable: S, update: U | None = None, *, loaded: bool = False) -> None:
        """The state in place can be read, and ``update`` says all that led to it; ``loaded``: it is
        the one that the world starts from."""
        if not self.held.reads(readable):
            return
        point, world = readable.point, self.world
        self._sharing.holds(readable, update, world)
        if world is not None and loaded:
            self.say(w.TrainerLoaded(world.generation, point.step, point.stamp))
        self._sharing.serve()

    def begin_update(self) -> None:
        """An update begins, or GenerationLost."""
        self.current()
        self.held.updating, self.held.readable = True, None

    def begin_preparing(self, serial: int) -> None:
        """A state is about to replace ours; or GenerationLost: that would belie our answer."""
        if serial < self._frozen:
            raise GenerationLost("a freeze came before")
        self.held.updating, self.held.readable = True, None

    @property
    def keeps_updates(self) -> bool:
        """Whether the update in hand is to be kept for others: not where memory is short."""
        return not self._short

    @property
    def owes_update(self) -> bool:
        """Whether somebody may still need the newest update."""
        return bool(self._sharing.lending.starts)

    def end_update(self, point: Point, update: U | None) -> None:
        """A step was applied, perhaps the one whose end we had missed and from which the present
        world starts. None: its update is given to nobody."""
        visit = self.visits.visit
        missed = None if visit is None or visit.settled else visit.world
        self.held.given = self.held.complete = False
        self._sharing.lending.applied(update, None if self.world is None else self.world.generation)
        self._end(point)
        if missed is not None:
            self.held.committed = None
            self.say(w.TrainerLoaded(missed.generation, point.step, point.stamp))

    def end_load(self, point: Point, *, complete: bool) -> None:
        """A state from elsewhere is in place; ``complete``: as what its step's body has left there.
        What was committed before belonged to another."""
        self._sharing.lending.drop()
        self._voice.retold.brought()
        self.calls.replaced()
        self.held.committed, self.held.given, self.held.unproven = None, True, True
        self.held.complete = complete
        self._end(point)

    def give_up_update(self) -> None:
        """It ends with the state as it was, if it had begun at all."""
        self._end()

    def _end(self, point: Point | None = None) -> None:
        held = self.held
        if point is not None:
            held.move(point)
            self.calls.passed(point.step)
            self._settle()
        held.updating = False
        serials, held.freezes = held.freezes, ()
        for serial in serials:
            self._answer_freeze(serial)

    def prepared(self, serial: int, reason: str) -> None:
        point = None if reason else self.held.point
        self.say(w.TrainerPrepared(serial, point, reason, self.held.replays))

    def idle_since(self, serial: int) -> bool:
        """Whether nothing else was asked of us since the delivery of that serial."""
        return serial >= self._frozen and self.arrivals.world is None and not self.released

    # --- the training thread: steps ---------------------------------------------------------------

    def commit(self, step: int) -> None:
        """Every member has applied it; or GenerationLost."""
        self._sharing.lending.committed(self.current().generation)
        self.held.committed = step
        self._voice.do(TellProgress())

    def probe(self, result: w.TrainerProbed) -> None:
        """Tell, once in a world, what the first grain and update came to; or GenerationLost."""
        generation = self.current().generation
        if self.visits.visit is not None and self.visits.visit.probes():
            self.say(replace(result, generation=generation))

    def finish(self, point: Point) -> None:
        """The last step is committed."""
        if (world := self.world) is not None:
            self.say(w.TrainerFinished(world.generation, point.step, point.stamp))

    @property
    def may_end(self) -> bool:
        """Whether there is an end to the wait behind the last step."""
        return self.released or self.visits.visit is None

    def progress(self, figures: Figures) -> w.TrainerProgress | None:
        """What to say of the work; None while there is no world, or not its state."""
        visit, point = self.visits.visit, self.held.point
        if visit is None or not visit.settled or point is None:
            return None
        begun = self.visits.halting.begun > point.step
        return figures.told(visit.world.generation, point, self.held.committed, begun)
