"""When the leader tries again what has failed."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.context import Context

_LONGEST_PAUSE = 5
"""Doublings of the pause between tries."""


@dataclass(slots=True)
class Tries:
    """Of one job, while its driver lives. News from a member, or a new view, may end a pause."""

    ctx: Context
    hold_off: float = 0.0
    """Before this time nothing can have changed that made the last plan impossible."""
    unread: int = 0
    """Checkpoints in a row that a member could not read, nor have from another."""
    read_again_at: float = 0.0
    rests_until: float = 0.0
    """Recovery after recovery had come to nothing."""

    @property
    def soonest(self) -> float:
        """When the next world may be tried."""
        return max(self.hold_off, self.read_again_at, self.rests_until)

    @property
    def resting(self) -> bool:
        """Whether recovery after recovery had come to nothing, a while ago."""
        return self.ctx.now < self.rests_until

    def pause(self, times: int) -> float:
        """Seconds before something is tried again that has failed so often: longer each time."""
        return self.ctx.timing.retry_seconds * float(2 ** min(times, _LONGEST_PAUSE))

    def heard(self) -> None:
        """A member has said how it is."""
        self.hold_off = 0.0

    def reset(self) -> None:
        """Other members are there."""
        self.hold_off = self.read_again_at = self.rests_until = 0.0

    def no_plan(self) -> None:
        """From what the members hold no world can be made."""
        self.hold_off = self.ctx.now + self.ctx.timing.retry_seconds

    def not_read(self) -> None:
        """A member could not have a checkpoint. Who has a copy may be away: until a node comes,
        trying at once again helps nobody."""
        self.read_again_at = self.ctx.now + self.pause(self.unread)
        self.unread += 1

    def rest(self, seconds: float) -> None:
        """Recovery after recovery has come to nothing."""
        self.rests_until = self.ctx.now + seconds

    def succeeded(self) -> None:
        """A world has formed."""
        self.unread = 0

    def deadlines(self) -> list[float]:
        """When a pause ends."""
        return [self.hold_off, self.read_again_at, self.rests_until]
