"""Silence, judged from arrivals alone."""

from __future__ import annotations

import pytest

from elasticd.core.membership.damping import LONGEST_STEADY_SECONDS, Damping
from elasticd.core.membership.detector import MOST_STRETCH, Bounds, Detector
from elasticd.types import NodeId

B, C = NodeId("b"), NodeId("c")
BOUNDS = Bounds(1.5, 1.95)


def listening(gaps: list[float], bounds: Bounds = BOUNDS) -> tuple[Detector, float]:
    """A detector that has heard ``b`` beat with these gaps, and the time of the last one."""
    detector, now = Detector(bounds, 0.25), 100.0
    detector.meet(B, now)
    for gap in gaps:
        now += gap
        detector.beat(B, now)
    return detector, now


def test_an_even_pace_leaves_the_floor() -> None:
    detector, now = listening([0.25] * 40)
    assert detector.silent_at(B, now) == pytest.approx(now + 1.5)


def test_an_uneven_pace_earns_patience_up_to_the_ceiling() -> None:
    detector, now = listening([0.05, 0.45, 0.1, 0.9] * 10)
    assert now + 1.5 < detector.silent_at(B, now) <= now + 1.95
    detector, now = listening([0.05, 3.0] * 10)
    assert detector.silent_at(B, now) == pytest.approx(now + 1.95)


def test_patience_shrinks_again_when_the_pace_is_even() -> None:
    detector, now = listening([0.05, 0.9] * 10 + [0.25] * 60)
    assert detector.silent_at(B, now) == pytest.approx(now + 1.5)


def test_anything_that_is_heard_ends_a_silence() -> None:
    detector, now = listening([0.25] * 4)
    detector.heard(B, now + 1.4)
    assert detector.silent_at(B, now + 1.4) >= now + 2.9
    assert detector.silent_at(C, now) == float("inf"), "nobody listens to it"


def test_time_in_which_this_node_did_not_run_is_nobodys_silence() -> None:
    detector, now = listening([0.25] * 10)
    assert detector.running(now + 6.0, now + 0.2) == pytest.approx(5.8)
    assert detector.silent_at(B, now + 6.0) > now + 6.0 + 1.2


def test_a_starved_node_is_more_patient_and_calms_down() -> None:
    detector, now = listening([0.25] * 10)
    for _ in range(20):
        now += 0.6
        detector.running(now, now - 0.5)
        detector.beat(B, now)
    assert detector.silent_at(B, now) - now > 1.5 * 2
    assert detector.health.stretch(now) <= MOST_STRETCH
    now += 60.0
    detector.beat(B, now)
    assert detector.silent_at(B, now) - now < 1.96


def test_punctual_timers_cost_no_trust() -> None:
    detector, now = listening([0.25] * 10)
    for _ in range(1000):
        assert detector.running(now, now - 0.01) == 0.0
    assert detector.health.stretch(now) == 1.0


def test_an_open_question_takes_half_of_the_time() -> None:
    detector, now = listening([0.25] * 10)
    detector.hasten(B, now)
    assert detector.silent_at(B, now) == pytest.approx(now + 0.75)


def test_the_first_flap_is_free_and_each_further_one_costs_twice_the_last() -> None:
    damping = Damping()
    waits = [damping.flapped(B, 100.0 + second) for second in range(8)]
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_STEADY_SECONDS, LONGEST_STEADY_SECONDS]
    assert damping.admit_at(B) == 107.0 + LONGEST_STEADY_SECONDS
    assert damping.admit_at(C) == 0.0


def test_flaps_are_forgotten() -> None:
    damping = Damping()
    for second in range(4):
        damping.flapped(B, float(second))
    assert damping.flapped(B, 600.0) == 0.0
    damping.flapped(B, 601.0)
    damping.restarted(B)
    assert damping.flapped(B, 602.0) == 0.0
