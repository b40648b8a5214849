"""The daemon's only clocks."""

from __future__ import annotations

import time


def monotonic_seconds() -> float:
    """Seconds since some moment, that go on while a Mac sleeps (time.monotonic stops there)."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def unix_seconds() -> float:
    """Seconds since 1970, for people; never compared between hosts."""
    return time.time()
