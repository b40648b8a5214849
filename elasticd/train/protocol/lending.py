"""What a trainer keeps for others: a state by reference, and updates.

What a state and an update consist of is the driver's business. Here they have a name and a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from elasticd.types import Point, Stamp, Tag

LEAST_LOG_BYTES = 64 << 20
"""The updates that are kept may have as many bytes as the state, or so many where that is small:
small models make steps faster than messages go round."""


class ReadableState(Protocol):
    """A state that stays as it is for as long as it is referred to."""

    @property
    def point(self) -> Point: ...
    @property
    def bytes(self) -> int: ...


class KeptUpdate(Protocol):
    """What led from the state ``before`` to that of ``step``."""

    @property
    def before(self) -> Stamp: ...
    @property
    def step(self) -> int: ...
    @property
    def stamp(self) -> Stamp: ...
    @property
    def bytes(self) -> int: ...
    @property
    def complete(self) -> bool:
        """Whether it says what the script's own code changed, too."""
        ...


S = TypeVar("S", bound=ReadableState)
U = TypeVar("U", bound=KeptUpdate)


@dataclass(frozen=True, slots=True)
class Request:
    """Of a state, or of a part of it; with ``since`` the updates from there on serve better."""

    serial: int
    step: int
    stamp: Stamp
    since: Stamp | None
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class Given(Generic[S, U]):
    """The answer to a request: updates, else a part of ``state``. With it the taker is at
    ``step``."""

    step: int
    stamp: Stamp
    updates: Sequence[U] = ()
    state: S | None = None
    part: int = 0
    parts: int = 1


class UpdateLog(Generic[U]):
    """The newest updates, oldest first: one, or, while something is lent, a state's worth."""

    def __init__(self) -> None:
        self._updates: list[U] = []

    @property
    def starts(self) -> list[Stamp]:
        """The states from which it leads up to the newest."""
        return [update.before for update in self._updates]

    def add(self, update: U, limit_bytes: int) -> bool:
        """Take in the next update. False if more than ``limit_bytes`` were held: all older ones
        are gone then."""
        if self._updates and self._updates[-1].stamp != update.before:
            self._updates.clear()
        self._updates.append(update)
        fits = len(self._updates) == 1 or sum(u.bytes for u in self._updates) <= limit_bytes
        if not fits:
            del self._updates[:-1]
        return fits

    def complete(self, update: U) -> None:
        """Have ``update`` in place of what was known of it."""
        if self._updates and self._updates[-1].stamp == update.stamp:
            self._updates[-1] = update

    def clear(self) -> None:
        self._updates.clear()

    def since(self, stamp: Stamp) -> list[U]:
        """All updates after the state ``stamp``; empty if they aren't here."""
        starts = self.starts
        return self._updates[starts.index(stamp) :] if stamp in starts else []


class Lending(Generic[S, U]):
    """The newest update lives until all members have applied it; more is kept only when asked."""

    def __init__(self) -> None:
        self._log: UpdateLog[U] = UpdateLog()
        self._generation: Tag | None = None
        self._state: S | None = None
        self._wanted: int | None = None
        self._limit_bytes = 0

    def order(self, generation: Tag, step: int | None, log: bool) -> None:
        """Keep the state of ``step`` and the updates behind it while ``generation`` lasts."""
        self._generation = generation if log else None
        self._state, self._wanted = None, step

    def refuses(self, at: int | None) -> str:
        """Why the state that was ordered can't be had, as the newest is of step ``at``."""
        if self._wanted is not None and at is not None and at >= self._wanted:
            return f"step {at} is applied already"
        return ""

    def complete(self, update: U) -> None:
        """The loop's body behind the newest update is done."""
        self._log.complete(update)

    def holds(self, state: S, generation: Tag) -> bool:
        """A state is in place. True if it is the one that was ordered, which is kept then."""
        if self._wanted != state.point.step or self._generation != generation:
            return False
        self._wanted, self._state = None, state
        self._limit_bytes = max(state.bytes, LEAST_LOG_BYTES)
        self._log.clear()
        return True

    @property
    def lends(self) -> bool:
        """Whether anything is kept for newcomers."""
        return self._generation is not None

    def applied(self, update: U | None, generation: Tag | None) -> None:
        """A step was applied; None: its update can't be given to anybody."""
        if update is None:
            self.drop()
            return
        keeps = self.lends and self._generation == generation and self._wanted is None
        if not self._log.add(update, self._limit_bytes if keeps else 0) and keeps:
            self._generation = self._state = None

    def committed(self, generation: Tag) -> None:
        """Every member has applied what we have: nobody needs it but who is to come."""
        if self._generation != generation:
            self.drop()

    def drop(self) -> None:
        """Keep nothing."""
        self._log.clear()
        self._generation = self._state = self._wanted = None

    @property
    def starts(self) -> list[Stamp]:
        """The states from which others can come up to ours by updates."""
        return self._log.starts

    def answer(self, request: Request, held: S | None) -> Given[S, U] | None:
        """What we have of what is asked for; ``held`` is the state in place. None: nothing, yet.

        Who is one step behind may be in the body of that step, or not: until ours is done we don't
        know what a newcomer needs."""
        updates = self._log.since(request.since) if request.since else []
        if updates and all(update.complete for update in updates):
            return Given(updates[-1].step, updates[-1].stamp, updates)
        for state in (self._state, held):
            if state is None:
                continue
            point = state.point
            if (point.step, point.stamp) == (request.step, request.stamp):
                part, parts = request.part, request.parts
                return Given(point.step, point.stamp, state=state, part=part, parts=parts)
        return None
