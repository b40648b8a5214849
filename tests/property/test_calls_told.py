"""What a trainer tells of results of ``run.on_main`` when it is frozen: whatever its script has
used on the way to the state that it holds is there, as it was used, however worlds come and go
before their states do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from elasticd.core.words import trainers as w
from elasticd.train.protocol.calls import digest
from elasticd.train.world import TrainerWorld
from elasticd.types import Point
from tests.unit.train.protocol.test_calls import holds, of_two
from tests.unit.train.protocol.worlds import START, Protocol, State, after, said, tag

Used = dict[int, list[bytes]]
"""By body."""


class Called(RuleBasedStateMachine):
    """The daemon's side, and a script with calls in each body, above and below its update."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol = Protocol()
        self.counter = self.serial = self.named = 0
        self.used: Used = {}
        """What has led to the state in place."""
        self.world: w.GiveWorld | None = None
        self.given: list[bytes] = []
        """Results of the world's caller, in the body that is under way."""
        self.heard = 0
        self.body = self.made = 0
        self.alone = False

    @initialize()
    def begin(self) -> None:
        self.serial = self.counter = 1
        self.protocol.hear(w.FreezeTrainer(1))
        self.world = of_two(1, 1, START, "init")
        self.protocol.hear(self.world, "cargo")
        self.protocol.take()
        self.protocol.adopt(START)
        said(self.protocol)
        self._begin_body(0)

    def _begin_body(self, body: int) -> None:
        self.body, self.made, self.given, self.heard, self.alone = body, 0, [], 0, False
        self.protocol.calls.begins(body)

    def _result(self) -> bytes:
        self.named += 1
        return str(self.named).encode()

    @property
    def at(self) -> Point:
        point = self.protocol.held.point
        assert point is not None
        return point

    # --- the daemon

    @rule()
    def freeze(self) -> None:
        self.serial += 1
        told = {called.body: called for called in holds(self.protocol, self.serial).calls}
        self.world = None
        point = self.protocol.held.point
        for body, results in self.used.items() if point is not None else ():
            if body >= self.at.step and results:
                used = told[body].used[: len(results)]
                assert used == tuple(map(digest, results)), f"{results} were used in body {body}"

    @precondition(lambda self: self.world is None)
    @rule(keeps=st.booleans(), main=st.booleans(), knows=st.integers(0, 3), back=st.booleans())
    def give_world(self, keeps: bool, main: bool, knows: int, back: bool) -> None:
        """``keeps``: the caller has had what was told; else another state comes, and results of
        its own."""
        self.serial += 1
        held = holds(self.protocol, self.serial)
        self.counter += 1
        ours = {called.body: called for called in held.calls}.get(self.body)
        if keeps and held.point is not None:
            self.given = self._as_told(ours.used if ours else ())
            if main:
                self.given = []  # it gives what it has
            knows, state, point = len(self.given), "keep", held.point
        else:
            self.given = [self._result() for _ in range(knows)]
            main, state = False, "load"
            point = replace(START, step=self.body + back, stamp=START.stamp)
        self.world = of_two(
            self.counter, 1, point, "keep" if state == "keep" else "load",
            caller=1 if main else 0, calls=((self.body, knows),) if knows else (),
        )  # fmt: skip
        self.heard = 0
        self.protocol.hear(self.world, "cargo")
        said(self.protocol)

    def _as_told(self, told: tuple[str, ...]) -> list[bytes]:
        """The results behind digests: all that were ever made are numbers."""
        names = {digest(str(n).encode()): str(n).encode() for n in range(self.named + 1)}
        return [names[each] for each in told]

    @precondition(lambda self: self.world is not None and self.world.caller == 0)
    @rule()
    def give_result(self) -> None:
        assert self.world is not None
        if self.heard == len(self.given):
            self.given.append(self._result())
        word = w.TellResult(self.world.generation, self.body, self.heard, self.given[self.heard])
        self.protocol.hear(word)
        self.heard += 1

    @precondition(lambda self: self.world is not None and self.heard > 0)
    @rule()
    def agree(self) -> None:
        assert self.world is not None
        self.protocol.hear(w.TellAgreed(self.world.generation, self.body, self.heard))

    # --- the script

    @precondition(lambda self: not self.alone)
    @rule()
    def call(self) -> None:
        match self.protocol.calls.called(self.body, self.made):
            case bytes() as data:
                self.used.setdefault(self.body, []).append(data)
                self.made += 1
            case "void":
                self.alone = True
                if self.body == self.at.step:
                    self.protocol.held.disown()
            case "run":
                self.protocol.calls.returned(self.body, self.made, self._result())
                self.heard += 1
            case _:
                pass

    @rule()
    def end_body(self) -> None:
        """And go over to the world that was given, if it was."""
        if not self.alone:
            self.protocol.calls.ends(self.body, self.made)
        taken = self.protocol.take() if self.protocol.is_called else None
        if taken is None:
            if self.world is not None and not self.alone and self.body == self.at.step:
                self._begin_body(self.body + 1)
            return
        world, _ = taken
        assert isinstance(world, TrainerWorld)
        if world.state == "load":
            self.protocol.begin_update()
            self.used.clear()
            self.protocol.end_load(world.point, complete=True)
        else:
            self.protocol.adopt(world.point)
            if self.body > world.point.step:
                if self.alone:  # it is run anew, from the state before
                    self.used.pop(self.body, None)
                    self._begin_body(self.body)
                return
        self.protocol.hold(State(world.point))
        self._begin_body(world.point.step + 1)

    @precondition(lambda self: not self.alone and self.protocol.world is not None)
    @rule()
    def update(self) -> None:
        if self.body == self.at.step + 1:
            self.protocol.begin_update()
            self.protocol.end_update(after(self.at, tag(self.counter))[0], None)


TestCalled = Called.TestCase
TestCalled.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
