"""The daemon and the training thread, interleaved at every call in every order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticd.core.words import trainers as w
from elasticd.errors import GenerationLost
from elasticd.train.protocol.effects import Drop, Export, LeaveWorld, Say, TellProgress
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, Tag

from .worlds import FIGURES, START, Protocol, State, after, tag, world

Move = tuple[Tag | None, Point]
"""A state, and the world in which it was reached."""


def script(protocol: Protocol, taken: list[object], moves: list[Move]) -> Iterator[None]:
    """What a training thread calls, one call between two yields; a wait is a loop of them."""
    while True:
        while not protocol.is_called:
            yield
        found = protocol.take()
        if found is None:
            return
        what, cargo = found
        taken.append(cargo)
        yield
        try:
            if isinstance(what, TrainerWorld):
                yield from _train(protocol, what, taken, moves)
            else:
                protocol.begin_preparing(what.serial)
                yield
                point = replace(START, step=what.serial)
                moves.append((None, point))
                protocol.end_load(point, complete=True)
                yield
                protocol.hold(State(point))
                yield
                protocol.prepared(what.serial, "")
        except GenerationLost:
            continue


def _train(
    protocol: Protocol, here: TrainerWorld, taken: list[object], moves: list[Move]
) -> Iterator[None]:
    point = here.point
    if here.state == "load":
        while not protocol.state_came(here.generation):
            yield
        _, cargo = protocol.take_state()
        taken.append(cargo)
        yield
        protocol.begin_update()
        yield
        moves.append((here.generation, point))
        protocol.end_load(point, complete=True)
    else:
        moves.append((here.generation, point))
        protocol.adopt(point)
    yield
    protocol.hold(State(point), loaded=here.state == "load")
    yield
    protocol.commit(point.step)
    while True:
        yield
        protocol.begin_update()
        yield
        point, update = after(point, here.generation)
        moves.append((here.generation, point))
        protocol.end_update(point, update)
        yield
        protocol.hold(State(point))
        yield
        protocol.commit(point.step)


class Interleaved(RuleBasedStateMachine):
    """``told`` is what the daemon knows: the newest answer to a freeze, until it gives leave to
    change what is held."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol = Protocol()
        self.sent: list[object] = []
        self.taken: list[object] = []
        self.dropped: list[object] = []
        self.moves: list[Move] = []
        self.thread = script(self.protocol, self.taken, self.moves)
        self.counter = self.serial = 0
        self.unanswered: list[int] = []
        self.told: w.TrainerHolds | None = None
        self.frozen = True
        """No world was given since the last freeze."""

    # --- the daemon

    def _cargo(self) -> object:
        self.sent.append(len(self.sent))
        return self.sent[-1]

    def _hear(self, word: w.ToTrainer, cargo: object = None) -> None:
        self.protocol.hear(word, cargo)
        self._perform()

    @rule()
    def freeze(self) -> None:
        self.serial += 1
        self.unanswered.append(self.serial)
        self.told, self.frozen = None, True
        self._hear(w.FreezeTrainer(self.serial))

    @precondition(lambda self: not self.unanswered)
    @rule(loads=st.booleans(), brings=st.booleans())
    def give_world(self, loads: bool, brings: bool) -> None:
        """As a leader does: when the answer is there; ``keep`` what that was."""
        self.counter += 1
        held = self.told.point if self.told is not None and self.frozen else None
        self.told, self.frozen = None, False
        if held is not None and not loads:
            self._hear(world(self.counter, held, "keep"), self._cargo())
            return
        first = self.protocol.held.point is None and not loads
        self._hear(world(self.counter, START, "init" if first else "load"), self._cargo())
        if brings:
            self._hear(w.LoadState(tag(self.counter)), self._cargo())

    @rule(late=st.booleans())
    def bring_state(self, late: bool) -> None:
        self._hear(w.LoadState(tag(max(0, self.counter - late))), self._cargo())

    @precondition(lambda self: self.frozen and not self.unanswered)
    @rule(stale=st.booleans())
    def deliver(self, stale: bool) -> None:
        """To one whose answer is there. A stale one was sent before, and must change nothing."""
        if not stale:
            self.serial += 1
            self.told = None
        self._hear(w.TakeState(self.serial - stale), self._cargo())

    @rule(what=st.sampled_from(["newest", "older", "lend", "let go", "restart"]))
    def ask(self, what: str) -> None:
        newest = self.moves[-1][1] if self.moves else START
        match what:
            case "newest":
                self._hear(w.ExportState(1, newest.step, newest.stamp))
            case "older":
                older = self.moves[-2][1] if len(self.moves) > 1 else START
                self._hear(w.ExportState(1, older.step, older.stamp))
            case "lend":
                self._hear(w.LendState(tag(self.counter), newest.step + 1, True))
            case "let go":
                self._hear(w.LendState(tag(self.counter), None, False))
            case _:
                self._restart()

    def _restart(self) -> None:
        """Another daemon listens. What the old one asked for is void."""
        here, *_ = self.protocol.introduce(FIGURES)
        assert isinstance(here, w.TrainerHere)
        assert (here.generation is None) == (self.frozen or self.counter == 0)
        assert here.serial == self.serial
        self.unanswered.clear()

    # --- the training thread

    @rule(calls=st.integers(1, 3))
    def train(self, calls: int) -> None:
        for _ in range(calls):
            next(self.thread)
            self._perform()

    @rule(calls=st.integers(4, 8))
    def train_on(self, calls: int) -> None:
        self.train(calls)

    # --- what comes of it

    def _perform(self) -> None:
        for effect in self.protocol.effects():
            match effect:
                case Say(w.TrainerHolds() as holds):
                    assert self.unanswered.pop(0) == holds.serial, "each once, in order"
                    assert holds.point == self.protocol.held.point
                    if not self.unanswered:
                        self.told = holds
                case Say(w.TrainerLoaded() as loaded):
                    assert loaded.generation == tag(self.counter)
                case Drop(cargo):
                    self.dropped.append(cargo)
                case Say() | LeaveWorld() | TellProgress() | Export():
                    pass

    @invariant()
    def what_was_answered_stays_true(self) -> None:
        if self.told is not None:
            assert self.protocol.held.point == self.told.point

    @invariant()
    def nothing_is_readable_that_changes(self) -> None:
        held = self.protocol.held
        assert not (held.updating and held.readable is not None)
        if held.readable is not None and not held.updating:
            assert held.readable.point.step in {point.step for _, point in self.moves}

    @invariant()
    def a_frozen_trainer_is_in_no_world(self) -> None:
        if self.frozen:
            assert self.protocol.world is None
        else:
            here = self.protocol.world
            assert here is None or here.generation == tag(self.counter)

    @invariant()
    def progress_is_of_the_world_and_its_state(self) -> None:
        told = self.protocol.progress(FIGURES)
        if told is not None:
            assert told.generation == tag(self.counter)
            here = [point for where, point in self.moves if where == told.generation]
            assert (told.step, told.stamp) in [(point.step, point.stamp) for point in here]
            assert told.committed is None or told.committed <= told.step

    @invariant()
    def no_cargo_is_lost_or_used_twice(self) -> None:
        gone = [*self.taken, *self.dropped]
        assert len(gone) == len(set(gone)) and set(gone) <= set(self.sent)
        assert len(self.sent) - len(gone) <= 3, "a world, a state and a delivery may wait"


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(
    max_examples=4 * settings().max_examples, stateful_step_count=50, deadline=None
)
