"""What lasts is told again now and then: after ten minutes, then after twice as long each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_SECONDS, LONGEST_SECONDS = 600.0, 86400.0


@dataclass(slots=True)
class Rarely:
    """One for each thing that is told."""

    clock: Callable[[], float] = time.monotonic
    _at: float = float("-inf")
    _wait: float = FIRST_SECONDS

    def due(self) -> bool:
        """Whether it is to be told now; then it is taken for told."""
        now = self.clock()
        if now < self._at:
            return False
        self._at, self._wait = now + self._wait, min(2 * self._wait, LONGEST_SECONDS)
        return True
