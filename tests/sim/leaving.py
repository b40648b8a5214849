"""Scripts that ask to stop, or leave their loop with ``break``: what ``Run._leave`` and
``Run._conclude`` do.

What stands behind the loop runs before the job's end is agreed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

from elasticd.core.words.processes import OURS, UNCOUNTED
from elasticd.train.steps.ending import StopWish
from elasticd.types import Point

from .calls import Calls
from .starting import takes
from .threads import Wait

if TYPE_CHECKING:
    from .trainer import Trainer


class Loop(Protocol):
    """That of the script."""

    @property
    def held_point(self) -> Point | None: ...

    @property
    def is_over(self) -> bool: ...

    @property
    def knows_last(self) -> bool:
        """Whether it is known with which step the job ends."""

    def turn(self) -> Generator[Wait, None, bool]:
        """From one body to the next; False if the job was released instead."""

    def finish(self) -> Generator[Wait, None, bool]:
        """Wait at the end of the job; False when released."""


class Leaving:
    """Of one script."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.wish = trainer, StopWish()
        self.stop: Point | None = None
        """After which state the script asks to stop."""
        shape = trainer.cluster.shapes[trainer.job]
        self._at = shape.stops_at if shape.breaks else 0

    def asks(self, here: Point | None) -> bool:
        """Whether it does here."""
        if here is None or self.stop is None:
            return False
        return (here.step, here.stamp) == (self.stop.step, self.stop.stamp)

    def leaves(self, body: int, point: Point | None, calls: Calls) -> bool:
        """Whether the script leaves its loop now, in that body, which has led to ``point``."""
        if body != self._at:
            return False
        if point is not None:
            self.wish.leave(point, not (calls.void or calls.alone))
        return True

    def behind(self) -> Generator[Wait, None, None]:
        """What stands behind the loop."""
        yield takes(self.trainer, "ends", *self.trainer.cluster.setup.end_seconds)

    def conclude(self, loop: Loop) -> Generator[Wait, None, None]:
        """All have to end at the step after which the loop was left."""
        while True:
            if self._strayed(loop):
                self.trainer.last_words = f"{OURS}the job goes on from another state"
                self.trainer.die(UNCOUNTED)
                return
            self.stop = loop.held_point
            if not (yield from loop.turn()):
                return
            if loop.is_over:
                if not (yield from loop.finish()):
                    return
            elif loop.knows_last and not self._strayed(loop):
                self.trainer.cluster.checkers.broken(f"{self.trainer.name} has left alone")

    def _strayed(self, loop: Loop) -> bool:
        point = loop.held_point
        return point is None or self.wish.strayed(point)
