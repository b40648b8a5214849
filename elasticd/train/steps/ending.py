"""Where a script wants its job to end, and what is asked of the others for that."""

from __future__ import annotations

from elasticd.train.world import TrainerWorld
from elasticd.types import Point


class StopWish:
    """Of one process. A body asks; what it asked for is told at its end, until that is decided."""

    def __init__(self) -> None:
        self.left = False
        """The script has left its loop: what it does now is no part of the state."""
        self._wish = ""
        self._asked: tuple[int, str] | None = None
        """After which step the script wants to go no further, and why."""

    def want(self, reason: str) -> None:
        """The step whose body is under way is to be the last."""
        self._wish = self._wish or reason

    def body_ends(self, point: Point, counts: bool) -> None:
        """What the body asked for holds, unless it was nobody's."""
        self._asked = (point.step, self._wish) if self._wish and counts else None
        self._wish = ""

    def asks(self, point: Point, world: TrainerWorld | None) -> str:
        """Why ``point`` is to be the last, if nobody has said yet which is."""
        if self._asked is None or world is None or world.last >= 0:
            return ""
        step, reason = self._asked
        return reason if step == point.step else ""
