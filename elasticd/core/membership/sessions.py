"""Reliable messages between two runs of daemons, over connections that break and lose.

Sans-IO: :meth:`Session.send` and :meth:`Session.receive` say what to transmit and what has arrived,
in order and once; whoever owns it transmits, and calls :meth:`Session.overdue` when a deadline has
come. A session lasts as long as both daemons run, whatever becomes of the connections between them.

Every message has a number. The receiver acknowledges cumulatively, on whatever goes the other way
or, if nothing does, alone after a moment. What is not acknowledged in time, or was sent on a
connection that has ended, is sent again. Heartbeats stay outside: a lost one is just lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

from elasticd.core.words.frames import Frame
from elasticd.core.words.messages import UNNUMBERED, Message
from elasticd.core.words.views import Heartbeat

ACK_SECONDS = 0.05
"""An acknowledgement waits this long for something to travel on."""
SHORTEST_RESEND_SECONDS = 0.2
LONGEST_RESEND_SECONDS = 2.0
RESEND_FRAMES = 64
"""No more than this many are sent again at once; a gap is mostly of one."""
MAX_UNACKED = 4096
"""A peer that lets more messages wait than this is given up."""
MAX_EARLY = 1024
"""What came before its turn is kept up to this number; the rest will come again."""


@dataclass(slots=True)
class Sent:
    number: int
    serial: int
    message: Message
    first_at: float
    last_at: float
    again: bool = False


@dataclass(slots=True)
class Counters:
    """What a session had to deal with, for ``doctor`` and tests."""

    resent: int = 0
    duplicates: int = 0
    stale: int = 0
    early: int = 0


@dataclass(slots=True)
class RoundTrip:
    """How long an answer takes: Jacobson's mean and deviation."""

    mean: float = 0.0
    deviation: float = 0.0

    def measure(self, seconds: float) -> None:
        if self.mean == 0.0:
            self.mean, self.deviation = seconds, seconds / 2
            return
        error = seconds - self.mean
        self.mean += error / 8
        self.deviation += (abs(error) - self.deviation) / 4

    @property
    def patience_seconds(self) -> float:
        """After so long without an answer it is not coming."""
        return max(SHORTEST_RESEND_SECONDS, self.mean + 4 * self.deviation)


@dataclass(slots=True)
class Inflow:
    """What has come of one of the peer's streams."""

    stream: int = 1
    received: int = 0
    """All numbers up to this one have been handed over."""
    heard: int = 0
    """The highest serial of what was handed over, of any stream."""
    early: dict[int, Frame] = field(default_factory=dict)

    def had(self, number: int) -> bool:
        return number <= self.received or number in self.early

    def begin(self, stream: int) -> None:
        """The peer has given the last one up."""
        self.stream, self.received = stream, 0
        self.early.clear()

    def keep(self, frame: Frame) -> None:
        """It came before its turn."""
        if len(self.early) < MAX_EARLY:
            self.early[frame.number] = frame

    def hand_over(self, frame: Frame) -> list[Frame]:
        """This frame, whose turn it is, and those that have waited for it."""
        found = [frame]
        while (following := self.early.pop(found[-1].number + 1, None)) is not None:
            found.append(following)
        self.received = found[-1].number
        self.heard = max(self.heard, found[-1].serial)
        return found


@dataclass(slots=True)
class Session:
    """Both directions between this run of our daemon and one run of a peer's."""

    mine: str
    boot: str
    connected: bool = False
    restarts: int = 0
    """How often either side gave messages up: what the peer was told is not known then."""
    counters: Counters = field(default_factory=Counters)
    _stream: int = 1
    _last: int = 0
    _said: int = 0
    _unacked: deque[Sent] = field(default_factory=deque)
    _inflow: Inflow = field(default_factory=Inflow)
    _ack_at: float = inf
    _resend_at: float = inf
    _patience: int = 0
    """How many times in a row a resend was in vain."""
    _round_trip: RoundTrip = field(default_factory=RoundTrip)

    # --- connections ------------------------------------------------------------------------------

    def up(self, now: float) -> list[Frame]:
        """There is a connection: all that may have been lost with the one before."""
        self.connected = True
        self._patience = 0
        self._wait(now)
        return [self._again(sent, now) for sent in self._unacked]

    def down(self) -> None:
        self.connected = False
        self._ack_at = self._resend_at = inf

    # --- sending ----------------------------------------------------------------------------------

    def send(self, now: float, message: Message) -> list[Frame]:
        """Take a message over. Nothing is lost while there is no connection, only late."""
        self._said += 1
        if isinstance(message, UNNUMBERED):
            return [self._frame(0, self._said, message)] if self.connected else []
        self._last += 1
        self._unacked.append(Sent(self._last, self._said, message, now, now))
        if len(self._unacked) == 1:
            self._wait(now)
        return [self._frame(self._last, self._said, message)] if self.connected else []

    @property
    def waits_since(self) -> float:
        """When the oldest message was sent that is not acknowledged."""
        return self._unacked[0].first_at if self._unacked else inf

    @property
    def overflows(self) -> bool:
        """The peer takes nothing: whoever owns the session has to call :meth:`give_up`."""
        return len(self._unacked) > MAX_UNACKED

    def give_up(self) -> None:
        """Forget what was not acknowledged, and let the peer know by beginning a new stream."""
        self._unacked.clear()
        self._stream, self._last, self._resend_at = self._stream + 1, 0, inf
        self.restarts += 1

    def bare(self) -> Frame:
        """Nothing but an acknowledgement: to be heard at all."""
        return self._frame(0, 0, None)

    # --- receiving --------------------------------------------------------------------------------

    def receive(self, now: float, frame: Frame) -> list[Message]:
        """The messages whose turn it is now, in the order of sending, each once ever."""
        if frame.boots != (self.boot, self.mine):
            self.counters.stale += 1
            return []
        if frame.ack_stream == self._stream:
            self._acked(now, frame.ack)
        inflow = self._inflow
        if frame.stream < inflow.stream:
            self.counters.stale += 1
            return []
        if frame.stream > inflow.stream:
            inflow.begin(frame.stream)
            self.restarts += 1
        if frame.message is None:
            return []
        if frame.number:
            return [found for each in self._take(now, frame) if (found := each.message) is not None]
        if isinstance(frame.message, Heartbeat):
            if frame.serial <= inflow.heard:
                self.counters.stale += 1
                return []
            inflow.heard = frame.serial
        return [frame.message]

    def _take(self, now: float, frame: Frame) -> list[Frame]:
        self._ack_at = min(self._ack_at, now + ACK_SECONDS)
        if self._inflow.had(frame.number):
            self.counters.duplicates += 1
            return []
        if frame.number > self._inflow.received + 1:
            self.counters.early += 1
            self._inflow.keep(frame)
            return []
        return self._inflow.hand_over(frame)

    def _acked(self, now: float, number: int) -> None:
        acked: list[Sent] = []
        while self._unacked and self._unacked[0].number <= number:
            acked.append(self._unacked.popleft())
        if not acked:
            return
        # What was sent twice measures nothing (Karn), nor does what came behind it and waited.
        if not any(sent.again for sent in acked):
            for sent in acked:
                self._round_trip.measure(now - sent.first_at)
        self._patience = 0
        self._wait(now)

    # --- time -------------------------------------------------------------------------------------

    def overdue(self, now: float) -> list[Frame]:
        """What is due now: messages again, or a bare acknowledgement."""
        frames = []
        if now >= self._resend_at:
            frames = self._resend(now)
        if now >= self._ack_at:
            frames.append(self.bare())
        return frames

    def deadline(self) -> float:
        return min(self._ack_at, self._resend_at)

    def _resend(self, now: float) -> list[Frame]:
        self._patience += 1
        oldest = list(self._unacked)[:RESEND_FRAMES]
        frames = [self._again(sent, now) for sent in oldest]
        self._wait(now)
        return frames

    def _wait(self, now: float) -> None:
        """Set the time at which the oldest message that is on its way is sent again."""
        if not self._unacked or not self.connected:
            self._resend_at = inf
            return
        usual = self._round_trip.patience_seconds
        wait = min(usual * 2**self._patience, LONGEST_RESEND_SECONDS)
        self._resend_at = max(now, self._unacked[0].last_at) + wait

    def _again(self, sent: Sent, now: float) -> Frame:
        self.counters.resent += 1
        sent.again, sent.last_at = True, now
        return self._frame(sent.number, sent.serial, sent.message)

    def _frame(self, number: int, serial: int, message: Message | None) -> Frame:
        self._ack_at = inf
        boots = (self.mine, self.boot)
        theirs = self._inflow
        return Frame(
            boots, self._stream, number, serial, theirs.stream, theirs.received, message
        )  # fmt: skip
