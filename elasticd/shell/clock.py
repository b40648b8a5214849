"""The daemon's only clocks."""

from __future__ import annotations

import time
from collections.abc import Callable


def continuous_seconds(gettime: Callable[[int], float]) -> float:
    """What ``gettime`` says of the clock that goes on while a Mac sleeps; time.monotonic stops."""
    return gettime(time.CLOCK_MONOTONIC_RAW)


def monotonic_seconds() -> float:
    """Seconds since some moment, that go on while a Mac sleeps."""
    return continuous_seconds(time.clock_gettime)


def unix_seconds() -> float:
    """Seconds since 1970, for people; never compared between hosts."""
    return time.time()
