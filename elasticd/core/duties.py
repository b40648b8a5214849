"""What a shell does next: events go in one at a time, effects come out in order, and none overtakes
a record that it may depend on.

    duties.post(event)    whenever something happens
    duties.next(now)      perform what it returns and ask again; None: nothing is to be done now
    duties.flushed()      the records of a :class:`Flush` are durable
    duties.beats(now)     to be sent while a flush lasts
    duties.mark(passed)   a :class:`Mark` comes out behind all effects there are now

While a flush lasts nothing else is handed out, and no event is taken in: they wait, however the
disk hangs. Only heartbeats go on, with what the last ones said, since that was true when it was
durable.

Whatever has come by the time that a flush is due is taken in before it, so that its records go to
the disk together. Effects between two such records go out after the second one is durable, events
before messages. Those of :data:`_WAITS` may: a crash after the flush then is as if they had been
lost on their way. A flush ends before any other effect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from elasticd.core.endpoint import Endpoint
from elasticd.core.words import effects as e
from elasticd.core.words.views import Heartbeat
from elasticd.errors import ElasticdError
from elasticd.types import NodeId

MAX_QUEUED_EVENTS = 100_000
MAX_RECORDS_A_FLUSH = 256
STUCK_SECONDS = 2.0
"""A flush that takes longer makes the node silent, so that the others go on without it. Its
trainers must end before the others may train alone (``Timing.outlive_seconds``)."""
_FRESH_SECONDS = 1.0
"""To whom the last heartbeat was sent longer before a flush gets none during it."""


@dataclass(frozen=True, slots=True)
class Mark:
    """All is done that the node knew of when it was set: call ``passed``."""

    passed: Callable[[], None]


_WAITS = (e.Transmit, e.Emit, e.Log, e.Reply, e.Reached, Mark)


@dataclass(frozen=True, slots=True)
class Flush:
    """Append these to the journal as one frame, then call :meth:`Duties.flushed`."""

    records: tuple[e.Persist, ...]


@dataclass(frozen=True, slots=True)
class Beaten:
    """A heartbeat that was sent: to which run of a daemon, when, what it said."""

    boots: tuple[str, str]
    at: float
    beat: Heartbeat


class Duties:
    """One endpoint's. Pure."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._events: deque[e.Inward] = deque()
        self._effects: deque[e.Outward | Mark] = deque()
        self._beaten: dict[NodeId, Beaten] = {}
        self._since: float | None = None
        """When the flush began that lasts."""

    def post(self, event: e.Inward) -> None:
        """Take an event over.

        Raises:
            ElasticdError: too many wait.
        """
        if len(self._events) >= MAX_QUEUED_EVENTS:
            raise ElasticdError(f"{MAX_QUEUED_EVENTS} events wait")
        self._events.append(event)

    def mark(self, passed: Callable[[], None]) -> None:
        """Have a :class:`Mark` handed out once the effects of all events taken in are performed."""
        self._effects.append(Mark(passed))

    def clear(self) -> list[Mark]:
        """Nothing is to be done any more; these marks had not been passed."""
        marks = [effect for effect in self._effects if isinstance(effect, Mark)]
        self._events.clear()
        self._effects.clear()
        return marks

    @property
    def flushing(self) -> bool:
        return self._since is not None

    @property
    def done(self) -> bool:
        """Nothing waits, not even for the disk."""
        return not (self._events or self._effects or self.flushing)

    def stuck(self, now: float) -> bool:
        """Whether the disk has hung for so long that the others should do without this node."""
        return self._since is not None and now - self._since > STUCK_SECONDS

    def next(self, now: float) -> e.Outward | Mark | Flush | None:
        """What is to be done now.

        Raises:
            InvariantError: and whatever else :meth:`Endpoint.step` raises.
        """
        if self.flushing:
            return None
        while not self._effects and self._events:
            self._take_in(now)
        if not self._effects:
            return None
        if isinstance(self._effects[0], e.Persist):
            while self._events:
                self._take_in(now)
            self._since = now
            return self._gather()
        effect = self._effects.popleft()
        if isinstance(effect, e.Transmit) and isinstance(effect.frame.message, Heartbeat):
            self._beaten[effect.to] = Beaten(effect.frame.boots, now, effect.frame.message)
        return effect

    def flushed(self) -> None:
        """What the last :class:`Flush` named is durable."""
        self._since = None

    def beats(self, now: float) -> list[e.Outward]:
        """Heartbeats that say what the last ones said; none once the flush has lasted too long."""
        if self._since is None or self.stuck(now):
            return []
        effects: list[e.Outward] = []
        for node, last in self._beaten.items():
            if self._since - last.at <= _FRESH_SECONDS:
                effects += self._endpoint.repeat(now, node, last.boots, last.beat)
        return effects

    def _take_in(self, now: float) -> None:
        self._effects.extend(self._endpoint.step(now, self._events.popleft()))

    def _gather(self) -> Flush:
        records: list[e.Persist] = []
        between: list[e.Outward | Mark] = []
        while self._effects and len(records) < MAX_RECORDS_A_FLUSH:
            effect = self._effects[0]
            if isinstance(effect, e.Persist):
                records.append(effect)
            elif isinstance(effect, _WAITS):
                between.append(effect)
            else:
                break
            self._effects.popleft()
        # Who hears of a record has had the event: what tells of it goes out first.
        between.sort(key=lambda effect: not isinstance(effect, e.Emit))
        self._effects.extendleft(reversed(between))
        return Flush(tuple(records))
