"""The interval that costs least."""

from __future__ import annotations

import math

import pytest

from elasticd.checkpoints.interval import UNSEEN_SECONDS, best


def test_it_is_young_and_dalys() -> None:
    # Ten failures in a day besides the assumed one, 2 s each: sqrt(2 * 2 * 86400 * 2 / 11).
    found = best(2.0, 1.0, 0.5, 10, UNSEEN_SECONDS)
    wanted = math.sqrt(4 * 2 * UNSEEN_SECONDS / 11)
    assert found.seconds == pytest.approx(wanted)
    assert found.steps == round(wanted / 0.5)
    assert "2000 ms" in found.reason and f"{wanted:.0f} s costs least" in found.reason


def test_more_failures_and_cheaper_checkpoints_shorten_it() -> None:
    one = best(0.1, 0.1, 0.1, 0, 3600)
    assert best(0.1, 0.1, 0.1, 5, 3600).steps < one.steps
    assert best(0.01, 0.1, 0.1, 0, 3600).steps < one.steps
    assert best(0.0, 0.1, 0.1, 0, 3600).steps > 1


def test_the_writer_keeps_up() -> None:
    found = best(0.001, 60.0, 1.0, 10_000, 3600)
    assert found.steps == 120
    assert "writing one takes 60.0 s" in found.reason


@pytest.mark.parametrize("step_seconds", [1e-9, 0.0, 1e9])
def test_it_is_a_number_of_steps_whatever_happens(step_seconds: float) -> None:
    assert 1 <= best(0.1, 0.1, step_seconds, 0, 0).steps <= 100_000
