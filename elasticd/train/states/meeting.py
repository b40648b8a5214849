"""Where writing takes longer than the interval: which of the checkpoints that are due it begins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Meeting:
    """Writers that each begin as soon as they are done get out of step, and of no checkpoint all
    shards are written. So who was late begins only with steps that are a multiple of 2, 4, 8…
    intervals, as many as the last writing took: at those of the slowest all meet."""

    late: int = 0
    """So many became due while the last one that was begun was written."""

    def begin(self) -> None:
        """One is written from now on."""
        self.late = 0

    def miss(self) -> None:
        """One became due meanwhile."""
        self.late += 1

    def every(self, interval: int) -> int:
        """Steps from one that is begun to the next, where one is due each ``interval``."""
        return interval << self.late.bit_length()

    def leaves_out(self, step: int, interval: int) -> bool:
        """Whether ``step`` is none of these. What is wanted besides is always begun."""
        return step % interval == 0 and step % self.every(interval) != 0
