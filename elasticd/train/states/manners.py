"""How fast a background writer may go: it watches what it costs the steps beside it."""

from __future__ import annotations

TOLERATED = 1.05
"""A step may take this much longer while a checkpoint is written."""
LEAST_DUTY = 0.1
_BACK_OFF, _COME_BACK = 0.7, 1.3
_SMOOTHING = 0.2
_OUTLIER = 4.0
"""A step that took so many times the usual was held up by something else."""


class Manners:
    """Compares the time of steps with and without writing, and sets the writer's duty: the share of
    the time in which it works. Seconds are monotonic and given."""

    def __init__(self) -> None:
        self.duty = 1.0
        self.idle_seconds: float | None = None
        """Of a step beside which nothing is written, on average."""
        self.busy_seconds: float | None = None
        self.cost_seconds = 0.0
        """By how much the steps beside the present writer were longer, in all."""
        self._last: float | None = None

    def step(self, now: float, *, writing: bool) -> None:
        """A step was finished at ``now``; ``writing``: all the time beside a writer."""
        last, self._last = self._last, now
        if last is None:
            return
        seconds = now - last
        if not writing:
            self.idle_seconds = _mean(self.idle_seconds, seconds)
            return
        if self.idle_seconds is None or seconds > _OUTLIER * self.idle_seconds:
            return
        self.busy_seconds = _mean(self.busy_seconds, seconds)
        self.cost_seconds += max(0.0, seconds - self.idle_seconds)
        if seconds > TOLERATED * self.idle_seconds:
            self.duty = max(LEAST_DUTY, self.duty * _BACK_OFF)
        else:
            self.duty = min(1.0, self.duty * _COME_BACK)

    def interrupt(self) -> None:
        """What comes now is no step's time."""
        self._last = None

    def pause_seconds(self, worked_seconds: float, *, hurry: bool) -> float:
        """How long to rest after so much work; not at all in a ``hurry``."""
        return 0.0 if hurry else worked_seconds * (1.0 - self.duty) / self.duty


def _mean(mean: float | None, seconds: float) -> float:
    if mean is None or seconds < mean / _OUTLIER:
        return seconds
    return mean + _SMOOTHING * (min(seconds, _OUTLIER * mean) - mean)
