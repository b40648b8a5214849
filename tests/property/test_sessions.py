"""Two sessions joined by a channel that loses, repeats, reorders and breaks."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elasticd.core.membership.sessions import Session
from elasticd.core.words.frames import Frame
from elasticd.core.words.messages import Message
from elasticd.core.words.tables import JobsKept
from elasticd.core.words.views import Heartbeat
from elasticd.types import NO_TAG, JobId

sides = st.sampled_from((0, 1))


class Channel(RuleBasedStateMachine):
    """Whatever happens below, each side gets what the other sent, once and in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ends = (Session("a", "b"), Session("b", "a"))
        self.sent: tuple[list[Message], list[Message]] = ([], [])
        self.got: tuple[list[Message], list[Message]] = ([], [])
        self.way: tuple[list[Frame], list[Frame]] = ([], [])
        """Frames towards each side, in no order."""

    @rule(side=sides)
    def up(self, side: int) -> None:
        self.way[1 - side].extend(self.ends[side].up(self.now))

    @rule(side=sides)
    def down(self, side: int) -> None:
        self.ends[side].down()

    @rule(side=sides, beat=st.booleans())
    def send(self, side: int, beat: bool) -> None:
        if beat:
            self.way[1 - side].extend(self.ends[side].send(self.now, Heartbeat(NO_TAG, 0)))
            return
        message = JobsKept((JobId(f"{side}-{len(self.sent[side])}"),))
        self.sent[side].append(message)
        self.way[1 - side].extend(self.ends[side].send(self.now, message))

    @rule(side=sides, which=st.integers(0, 1000), again=st.booleans(), lost=st.booleans())
    def arrive(self, side: int, which: int, again: bool, lost: bool) -> None:
        if not self.way[side]:
            return
        frame = self.way[side][which % len(self.way[side])]
        if not again:
            self.way[side].remove(frame)
        if not lost:
            self._deliver(side, frame)

    def _deliver(self, side: int, frame: Frame) -> None:
        found = self.ends[side].receive(self.now, frame)
        self.got[side].extend(m for m in found if not isinstance(m, Heartbeat))

    @rule(seconds=st.sampled_from((0.01, 0.06, 0.3, 3.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for side, end in enumerate(self.ends):
            if end.deadline() <= self.now:
                self.way[1 - side].extend(end.overdue(self.now))

    @invariant()
    def once_and_in_order(self) -> None:
        for side in (0, 1):
            assert self.got[side] == self.sent[1 - side][: len(self.got[side])]

    def teardown(self) -> None:
        """When losses end, everything arrives, and then both are at rest."""
        for side in (0, 1):
            self.way[side].clear()
        for side in (0, 1):
            self.up(side)
        for _ in range(200):
            for side in (0, 1):
                frames, self.way[side][:] = list(self.way[side]), []
                for frame in frames:
                    self._deliver(side, frame)
            soonest = min(end.deadline() for end in self.ends)
            if soonest == float("inf") and not any(self.way):
                break
            if not any(self.way):
                self.now = max(self.now, soonest)
                self.wait(0.0)
        assert self.got[0] == self.sent[1] and self.got[1] == self.sent[0]
        assert all(end.deadline() == float("inf") for end in self.ends)


TestChannel = Channel.TestCase
TestChannel.settings = settings(max_examples=60, stateful_step_count=60)
