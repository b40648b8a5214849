"""A trainer's process: the real protocol, driven by simulated time and threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from elasticd.core.words.records import Wanted, World
from elasticd.core.words.trainers import (
    TO_TRAINER,
    ExportState,
    FromTrainer,
    LoadState,
    TakeState,
    ToTrainer,
    TrainerNotExported,
)
from elasticd.settings.job import JobSpec
from elasticd.shell.children.given import to_trainer
from elasticd.train.protocol import effects as e
from elasticd.train.protocol.lending import Given
from elasticd.train.protocol.trainer import Figures, TrainerProtocol
from elasticd.types import JobId, Point, Tag, WorkPhase

from .calls import Calls
from .chips import ON_CPU, drifted
from .process import SOCKET_SECONDS, Process
from .proving import Outside
from .questions import Answer, Answered
from .ring import Place, Reducer
from .states import Brought, State, Update, loss_of
from .threads import Thread
from .training import Training
from .writing import Writer

if TYPE_CHECKING:
    from .host import Host

_REPORT_SECONDS = 0.1
"""What isn't urgent is told within that time."""


class Trainer(Process):
    """Takes in what its daemon says, whatever its training thread does."""

    def __init__(self, host: Host, child: int, job: JobId, spec: JobSpec, spare: bool) -> None:
        super().__init__(host, child)
        self.job, self.spec, self.spare = job, spec, spare
        self.protocol: TrainerProtocol[State, Update] = TrainerProtocol()
        self.writer = Writer(self)
        self.stuck = False
        """Never ends what it computes."""
        self.short = False
        """Its next grain does not fit into memory."""
        self.calls = Calls(self)
        self.spoilt = False
        """Its state is not what the others have at this step."""
        self.taint: frozenset[int] = frozenset()
        """By which faults."""
        self.chokes_at = ""
        """Where it hangs when it takes a state, if it does."""
        self.drift, self.chip = "", self.cluster.chip_of(host.name)
        """What its chip, and others', have made of its state."""
        self.built: dict[str, str] = {}
        """What its script has built, as far as it is compared."""
        self.doubts: list[tuple[object, bool]] = []
        """The leaders' drivers that have found that out; whether the others were of one mind."""
        self.fresh = False
        """It has taken another's state, of which its daemon may not know yet."""
        self.outside = Outside()
        self._figures = Figures("idle", None, 0, None, 1, {}, 0.0, 0.0, 0.0)
        self._to_report = False
        self._reducers: list[Reducer] = []
        self._questions: dict[int, Answered] = {}
        """Which states are asked for, by serial."""
        self._asked = 0
        self._thread, self._training = Thread(self), Training(self)
        self._thread.start(self._training.run())

    @property
    def name(self) -> str:
        return f"{self.host.name}/{self.child}"

    def comes_to_its_end(self) -> None:
        """The script has done what stands behind its loop, too."""
        if self.alive:
            self.cluster.checkers.script_ends.come_to(self.job, self.host.name)
            self.die(0)

    @property
    def point(self) -> Point | None:
        """What it holds."""
        return self.protocol.held.point

    @property
    def slowness(self) -> float:
        order = sorted(self.cluster.hosts).index(self.host.name)
        given = self.cluster.setup.slowness
        return given[order] if order < len(given) else 1.0

    def takes(self, brought: Brought) -> None:
        """Another's whole state is its own from now on."""
        self.spoilt, self.taint, self.drift = brought.spoilt, brought.taint, brought.drift
        self.doubts[:] = brought.doubts
        self.fresh = True

    def updates(self, step: int, *, on_cpu: bool) -> None:
        """It applies the update that leads to ``step``."""
        chips, before = self.cluster.setup.chips, self.drift
        self.drift = drifted(before, ON_CPU if on_cpu and chips.cpu else self.chip)
        self.cluster.checkers.places.updates(self, step, before, on_cpu=on_cpu)

    def replays(self, updates: Iterable[Update]) -> None:
        """It applies others' updates to its state."""
        for update in updates:
            self.updates(update.step, on_cpu=update.on_cpu)

    # --- the protocol's driver --------------------------------------------------------------------

    @contextmanager
    def turn(self) -> Iterator[TrainerProtocol[State, Update]]:
        """Call the protocol, and do what that leads to."""
        try:
            yield self.protocol
        finally:
            for effect in self.protocol.effects():
                self._perform(effect)
            self._thread.look()

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.Say(word):
                if isinstance(word, TrainerNotExported):  # the daemon's shell wants to know
                    self._answer(word.serial, word.reason)
                else:
                    self.tell_daemon(word)
            case e.LeaveWorld():
                self._thread.fall_out("interrupted")
            case e.Drop(cargo):
                if isinstance(cargo, Place) and cargo.reducer is not None:
                    cargo.reducer.close_data()
            case e.Export(serial, given):
                self._export(serial, given)
            case e.TellProgress():
                self._to_report = True
                self._report()
            case _:
                assert_never(effect)

    def say(self, word: FromTrainer) -> None:
        with self.turn() as protocol:
            protocol.say(word)

    # --- its daemon -------------------------------------------------------------------------------

    def hear(self, word: ToTrainer, cargo: e.Cargo = None) -> None:
        """What its daemon sends, with what comes with it."""
        if self.cluster.setup.on_the_wire:
            word = TO_TRAINER.decode(TO_TRAINER.encode(word))

        def heard() -> None:
            with self.turn() as protocol:
                protocol.hear(word, cargo)

        self.later(SOCKET_SECONDS, heard)

    def enter(self, world: World, rank: int, reducer: Reducer | None) -> None:
        if reducer is not None:
            reducer.trainer = self
            self._reducers.append(reducer)
            if not self.alive:
                reducer.close_data()
        self.hear(to_trainer(world, rank, self.spec, Path()), Place(world, rank, reducer))

    def load(self, generation: Tag, brought: Brought) -> None:
        self.hear(LoadState(generation), brought)

    def deliver(self, serial: int, brought: Brought) -> None:
        self.hear(TakeState(serial), brought)

    def ask(self, wanted: Wanted, answered: Answered) -> None:
        """Ask for a state, or the updates that lead to it."""
        self._asked += 1
        self._questions[self._asked] = answered
        since = wanted.since.stamp if wanted.since is not None else None
        self.hear(ExportState(self._asked, wanted.point.step, wanted.point.stamp, since))

    def _export(self, serial: int, given: Given[State, Update]) -> None:
        updates = tuple(given.updates)
        point = self.point
        if point is None and given.state is not None:  # it is about to load another one
            point = given.state.point
        assert point is not None
        point = Point(point.lineage, given.step, given.stamp)
        spoilt, taint = self.spoilt and not updates, frozenset() if updates else self.taint
        drift = self.drift if given.state is None else given.state.drift
        brought = Brought(point, updates, spoilt, drift, tuple(self.doubts), taint)
        if given.state is not None:
            brought = replace(brought, seen=given.state.seen, set_up=given.state.set_up)
        takes = self.chance("exports").uniform(*self.cluster.setup.export_seconds)
        self.later(takes, lambda: self._answer(serial, brought))

    def _answer(self, serial: int, answer: Answer) -> None:
        """Whoever asked that hears it, if it still waits."""
        if (answered := self._questions.pop(serial, None)) is not None:
            answered(answer)

    def introduce(self) -> None:
        for word in self.protocol.introduce(self._figures):
            self.tell_daemon(word)

    def lost_reducer(self, reducer: Reducer) -> None:
        """The data socket closed, which is seen where the thread waits for it."""
        place = self._training.place
        if place is not None and place.reducer is reducer:
            self._thread.fall_out("the data socket closed")

    def ended(self, status: int) -> None:
        for reducer in self._reducers:
            reducer.close_data()
        for serial in list(self._questions):
            self._answer(serial, f"{self.name} ended")

    # --- what is shown ----------------------------------------------------------------------------

    def phase(self, name: WorkPhase) -> None:
        if self._figures.phase != name:
            self._figures = replace(self._figures, phase=name)
            if not self._to_report:
                self._to_report = True
                self.later(self.chance("reports").uniform(0.0, _REPORT_SECONDS), self._report)

    def timed(self, number: int, *, idle: bool) -> None:
        grain = (
            0.0 if idle else self.slowness * sum(self.cluster.setup.grain_seconds_of(number)) / 2
        )
        update = 0.003 * self.slowness
        self._figures = replace(
            self._figures,
            loss=loss_of(number),
            loss_step=number,
            grain_seconds=grain,
            update_seconds=update,
        )

    def reduced_in(self, seconds: float) -> None:
        self._figures = replace(self._figures, reduce_seconds=seconds)

    def _report(self) -> None:
        if self._to_report:
            self._to_report = False
            if (progress := self.protocol.progress(self._figures)) is not None:
                self.tell_daemon(progress)
