"""How a background writer learns what it costs."""

from __future__ import annotations

from elasticd.train.states.manners import LEAST_DUTY, Manners


def _steps(manners: Manners, start: float, seconds: float, count: int, *, writing: bool) -> float:
    manners.interrupt()
    manners.step(start, writing=writing)
    for number in range(1, count + 1):
        manners.step(start + number * seconds, writing=writing)
    return start + count * seconds


def test_it_rests_while_steps_are_slow_beside_it_and_comes_back() -> None:
    manners = Manners()
    now = _steps(manners, 0.0, 0.1, 20, writing=False)
    assert manners.pause_seconds(0.01, hurry=False) == 0.0
    now = _steps(manners, now, 0.13, 3, writing=True)
    assert manners.duty < 0.5
    assert manners.pause_seconds(0.01, hurry=False) > 0.01
    assert manners.pause_seconds(0.01, hurry=True) == 0.0
    now = _steps(manners, now, 0.13, 50, writing=True)
    assert manners.duty == LEAST_DUTY
    _steps(manners, now, 0.1, 50, writing=True)
    assert manners.duty == 1.0


def test_what_was_held_up_by_something_else_tells_nothing() -> None:
    manners = Manners()
    now = _steps(manners, 0.0, 0.1, 20, writing=False)
    _steps(manners, now, 30.0, 3, writing=True)
    assert manners.duty == 1.0
    manners.interrupt()
    manners.step(1e6, writing=True)
    assert manners.duty == 1.0


def test_without_a_measure_it_goes_on() -> None:
    manners = Manners()
    _steps(manners, 0.0, 9.0, 5, writing=True)
    assert manners.duty == 1.0 and manners.busy_seconds is None


def test_first_slow_steps_are_forgotten() -> None:
    manners = Manners()
    now = _steps(manners, 0.0, 8.0, 2, writing=False)
    _steps(manners, now, 0.1, 3, writing=False)
    assert manners.idle_seconds is not None and manners.idle_seconds < 0.11
