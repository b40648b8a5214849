"""Where a script wants its job to end, and what is asked of the others for that."""

from __future__ import annotations

import os

from elasticd.train.world import TrainerWorld
from elasticd.types import Point, Stamp


class StopWish:
    """Of one process. A body asks; what it asked for is told at its end, until that is decided."""

    def __init__(self) -> None:
        self.left = False
        """The script has left its loop: what it does now is no part of the state."""
        self._left_at: tuple[int, Stamp] | None = None
        """In which state, where that counts."""
        self._process = os.getpid()
        self._wish = ""
        self._asked: tuple[int, Stamp, str] | None = None
        """After which state the script wants to go no further, and why."""

    def leave(self, point: Point, counts: bool) -> None:
        """The script leaves its loop in that state, or where what it does is nobody's."""
        self.left, self._left_at = True, (point.step, point.stamp) if counts else None

    def strayed(self, point: Point) -> bool:
        """Whether the job is in another state than that in which the script has left its loop,
        which can't come back into it."""
        return self.left and (point.step, point.stamp) != self._left_at

    @property
    def forked(self) -> bool:
        """This is a child that the script has forked in its loop, whose end is not the loop's."""
        return os.getpid() != self._process

    def want(self, reason: str) -> None:
        """The step whose body is under way is to be the last."""
        self._wish = self._wish or reason

    def body_ends(self, point: Point, counts: bool) -> None:
        """What the body asked for holds, unless it was nobody's. It holds for as long as its state
        is in place: a world that knew the last step may be followed by one that doesn't."""
        if self._wish and counts:
            self._asked = point.step, point.stamp, self._wish
        elif not counts or not self._is_at(point):
            self._asked = None
        self._wish = ""

    def _is_at(self, point: Point) -> bool:
        return self._asked is not None and self._asked[:2] == (point.step, point.stamp)

    def asks(self, point: Point, world: TrainerWorld | None) -> str:
        """Why ``point`` is to be the last, if nobody has said yet which is."""
        if self._asked is None or world is None or world.last >= 0:
            return ""
        return self._asked[2] if self._is_at(point) else ""
