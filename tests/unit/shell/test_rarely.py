"""What lasts is told again, and more and more seldom."""

from __future__ import annotations

from elasticd.shell.rarely import FIRST_SECONDS, LONGEST_SECONDS, Rarely


def told(until: float) -> list[float]:
    """At which of the times, a minute apart, it is told."""
    now = 0.0
    rarely, found = Rarely(lambda: now), []
    while now < until:
        if rarely.due():
            found.append(now)
        now += 60.0
    return found


def test_each_time_it_takes_twice_as_long() -> None:
    assert told(8 * FIRST_SECONDS) == [0.0, 600.0, 1800.0, 4200.0]


def test_it_is_told_each_day() -> None:
    days = told(10 * LONGEST_SECONDS)
    assert days[-1] - days[-2] == LONGEST_SECONDS
