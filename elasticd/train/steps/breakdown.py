"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elasticd.types import StepPart, WorkPhase

_MEAN_STEPS = 20
_PART_OF: dict[WorkPhase, StepPart] = {
    "data": "data",
    "compute": "compute",
    "reduce": "reduce",
    "update": "update",
    "user": "script",
    "evaluate": "script",
    "idle": "waiting",
    "paused": "waiting",
}


class Breakdown:
    """Seconds of one process by what it was about, over the last few steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: deque[Counter[StepPart]] = deque(maxlen=_MEAN_STEPS)
        self._now: Counter[StepPart] = Counter()
        self._part: StepPart = "waiting"
        self._since = clock()
        self._whole = False
        """The step in hand is timed from its beginning."""

    def phase(self, name: WorkPhase) -> None:
        """What is done from now on."""
        self._turn(_PART_OF[name])

    @contextmanager
    def storing(self) -> Iterator[None]:
        """Meanwhile training stands still for a checkpoint."""
        before = self._part
        self._turn("checkpoint")
        try:
            yield
        finally:
            self._turn(before)

    def step_done(self) -> None:
        """A step's update is made: the next one begins."""
        self._turn(self._part)
        if self._whole:
            self._last.append(self._now)
        self._now, self._whole = Counter(), True

    def pause(self) -> None:
        """The step in hand is broken off: its time is none of a step's."""
        self._whole = False

    @property
    def seconds(self) -> dict[str, float]:
        """The mean of each part a step; empty before the second step."""
        count = len(self._last)
        total: Counter[StepPart] = sum(self._last, Counter())
        return {part: seconds / count for part, seconds in total.items()}

    def _turn(self, part: StepPart) -> None:
        now = self._clock()
        self._now[self._part] += now - self._since  # type: ignore[assignment]
        self._part, self._since = part, now
