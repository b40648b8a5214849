"""The daemon's clock goes on while a Mac sleeps."""

from __future__ import annotations

import time

import pytest

from elasticd.shell.clock import continuous_seconds, monotonic_seconds

UPTIME_RAW = 8
"""CLOCK_UPTIME_RAW of Darwin's time.h, which Linux lacks."""


class Darwin:
    """clock_gettime(3) there: MONOTONIC_RAW counts sleep, UPTIME_RAW does not. Nor does Python's
    time.monotonic, which reads mach_absolute_time."""

    def __init__(self) -> None:
        self.awake, self.asleep = 100.0, 0.0

    def gettime(self, clock: int) -> float:
        if clock == time.CLOCK_MONOTONIC_RAW:
            return self.awake + self.asleep
        assert clock in (UPTIME_RAW, time.CLOCK_MONOTONIC)
        return self.awake


class Linux:
    """The system's own; nothing here sleeps."""

    gettime = staticmethod(time.clock_gettime)


@pytest.mark.parametrize("kernel", [Linux(), Darwin()], ids=["here", "darwin"])
def test_it_never_goes_back(kernel: Linux | Darwin) -> None:
    first = continuous_seconds(kernel.gettime)
    assert continuous_seconds(kernel.gettime) >= first


def test_the_daemons_is_that_of_the_system() -> None:
    before = time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    assert before <= monotonic_seconds() <= time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def test_it_counts_what_a_mac_has_slept() -> None:
    mac = Darwin()
    before = continuous_seconds(mac.gettime), mac.gettime(UPTIME_RAW)
    mac.asleep += 3600.0
    mac.awake += 1.0
    after = continuous_seconds(mac.gettime), mac.gettime(UPTIME_RAW)
    assert (after[0] - before[0], after[1] - before[1]) == (3601.0, 1.0)
