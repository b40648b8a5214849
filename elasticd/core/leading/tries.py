"""When the leader tries again what has failed."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from elasticd.core.context import Context

_LONGEST_PAUSE = 5
"""Doublings of the pause between tries."""
_AT_ONCE = 4
"""So many rings that strangers have spoilt are tried again without a pause."""
_LONGEST_EVASION = 4
"""Pauses after that, of which each is twice as long as the one before; then it stays so long."""


@dataclass(slots=True)
class Tries:
    """Of one job, while its driver lives. News from a member, or a new view, may end a pause."""

    ctx: Context
    met_at: float = 0.0
    """When these members came together: before that none has said how it is."""
    hold_off: float = 0.0
    """Before this time nothing can have changed that made the last plan impossible."""
    planless_since: float = inf
    """Since when no world can be made from what the members hold."""
    unread: int = 0
    """Checkpoints in a row that a member could not read, nor have from another."""
    read_again_at: float = 0.0
    rests_until: float = 0.0
    """Recovery after recovery had come to nothing."""
    strangers: int = 0
    """Rings in a row that strangers have kept from coming up."""
    clear_at: float = 0.0
    """Before this time no ring is tried again that strangers may spoil."""

    @property
    def soonest(self) -> float:
        """When the next world may be tried."""
        return max(self.hold_off, self.read_again_at, self.rests_until, self.clear_at)

    @property
    def resting(self) -> bool:
        """Whether recovery after recovery had come to nothing, a while ago."""
        return self.ctx.now < self.rests_until

    @property
    def planless(self) -> bool:
        """Whether none could be for a while: it may soon be otherwise."""
        return self.ctx.now - self.planless_since > self.ctx.timing.holding_seconds

    def pause(self, times: int) -> float:
        """Seconds before something is tried again that has failed so often: longer each time."""
        return self.ctx.timing.retry_seconds * float(2 ** min(times, _LONGEST_PAUSE))

    def heard(self) -> None:
        """A member has said how it is."""
        self.hold_off = 0.0

    def reset(self) -> None:
        """Other members are there."""
        self.met_at = self.ctx.now
        self.hold_off = self.read_again_at = self.rests_until = self.clear_at = 0.0
        self.planless_since = inf

    def no_plan(self) -> None:
        """From what the members hold no world can be made."""
        self.hold_off = self.ctx.now + self.ctx.timing.retry_seconds
        self.planless_since = min(self.planless_since, self.ctx.now)

    def planned(self) -> None:
        """One can."""
        self.planless_since = inf

    def not_read(self) -> None:
        """A member could not have a checkpoint. Who has a copy may be away: until a node comes,
        trying at once again helps nobody."""
        self.read_again_at = self.ctx.now + self.pause(self.unread)
        self.unread += 1

    def rest(self, seconds: float) -> None:
        """Recovery after recovery has come to nothing."""
        self.rests_until = self.ctx.now + seconds

    def met_stranger(self) -> None:
        """One was in a ring that was to come up. The next one, on other ports, comes up at once,
        unless that was of no use again and again."""
        self.strangers += 1
        beyond = self.strangers - _AT_ONCE
        if beyond > 0:
            self.clear_at = self.ctx.now + self.pause(min(beyond, _LONGEST_EVASION) - 1)

    def succeeded(self) -> None:
        """A world has formed."""
        self.unread = self.strangers = 0

    def deadlines(self) -> list[float]:
        """When a pause ends."""
        return [self.hold_off, self.read_again_at, self.rests_until, self.clear_at]
