"""The time of a step, by part, with a clock of the test's own."""

from __future__ import annotations

from elasticd.train.steps.breakdown import Breakdown


class FakeClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def step(times: Breakdown, clock: FakeClock, compute: float = 2.0) -> None:
    times.phase("data")
    clock.now += 1.0
    times.phase("compute")
    clock.now += compute
    times.phase("reduce")
    clock.now += 3.0
    with times.storing():
        clock.now += 0.5
    times.phase("update")
    clock.now += 0.25
    times.step_done()
    times.phase("user")
    clock.now += 0.125


def test_each_second_is_of_one_part() -> None:
    times = Breakdown(clock := FakeClock())
    step(times, clock)
    assert times.seconds == {}, "the first step holds what came before it"
    step(times, clock)
    expected = {"data": 1, "compute": 2, "reduce": 3, "checkpoint": 0.5, "update": 0.25,
                "script": 0.125}  # fmt: skip
    assert times.seconds == expected
    step(times, clock, compute=4.0)
    assert times.seconds == expected | {"compute": 3}


def test_a_step_that_was_broken_off_counts_nothing() -> None:
    times = Breakdown(clock := FakeClock())
    step(times, clock)
    step(times, clock)
    before = times.seconds
    times.phase("compute")
    times.pause()
    times.phase("idle")
    clock.now += 100.0
    step(times, clock)
    assert times.seconds == before
    step(times, clock, compute=4.0)
    assert times.seconds["compute"] == 3


def test_only_the_last_ones_count() -> None:
    times = Breakdown(clock := FakeClock())
    for compute in [1.0] * 30 + [5.0] * 20:
        step(times, clock, compute)
    assert times.seconds["compute"] == 5
