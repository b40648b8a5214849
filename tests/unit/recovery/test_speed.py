"""Shares by speed: hysteresis, what a change costs, stragglers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery import speed
from elasticd.recovery.regroup import Shares, check_shares, reshare, shares, step_seconds
from elasticd.recovery.speed import MemberPace
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")
MEMBERS = (A, B, C)
EQUAL = shares(12, 3)


def counts(dealt: Shares) -> list[int]:
    return [sum(end - start for start, end in share) for share in dealt]


def timed(*grain_seconds: float, updates: float = 0.01) -> speed.Speeds:
    speeds = speed.Speeds()
    for node, seconds in zip(MEMBERS, grain_seconds, strict=False):
        speeds.saw(node, MemberPace(seconds, updates))
    return speeds


def judge(speeds: speed.Speeds, dealt: Shares, times: int, left: int = 1000) -> list[int]:
    """In which of so many steps a move was proposed."""
    return [n for n in range(times) if speeds.judge(MEMBERS, 12, dealt, left) is not None]


@given(
    st.integers(1, 40),
    st.lists(st.sampled_from([1.0, 1.5, 2.0, 3.0, 7.0]), min_size=1, max_size=6),
)
def test_no_cut_ends_much_sooner(grains: int, seconds: list[float]) -> None:
    dealt = shares(grains, len(seconds), tuple(seconds))
    check_shares(grains, dealt)
    end = step_seconds(dealt, seconds)
    shorter = [int(end / 1.06 / each) for each in seconds]
    assert sum(shorter) < grains, "everyone could be done sooner by more than the slack"


def test_speeds_of_many_grains_need_no_search() -> None:
    dealt = shares(3000, 3, (1.0, 1.0, 2.0))
    check_shares(3000, dealt)
    assert counts(dealt) == [1200, 1200, 600]


def test_what_a_cut_step_lacks_goes_to_the_fast() -> None:
    kept = {A: [(0, 2)], B: [(2, 4)]}
    dealt = reshare(12, kept, (A, B), (1.0, 4.0))
    check_shares(12, dealt)
    assert counts(dealt)[0] > 2 * counts(dealt)[1]


def test_shares_move_once_the_gain_has_lasted() -> None:
    speeds = timed(0.1, 0.1, 0.4)
    dealt = shares(12, 3)
    assert judge(speeds, dealt, speed.STEPS) == [speed.STEPS - 1]
    moved = shares(12, 3, speeds.weights(MEMBERS))
    assert counts(moved)[2] < 4 == counts(dealt)[2]
    assert judge(speeds, moved, 50) == [], "they are where they should be"


def test_a_gain_that_comes_and_goes_moves_nothing() -> None:
    speeds, dealt = timed(0.1, 0.1, 0.4), shares(12, 3)
    for _ in range(10):
        assert judge(speeds, dealt, speed.STEPS - 1) == []
        speeds.saw(C, MemberPace(0.1, 0.01))
        assert judge(speeds, dealt, 1) == []
        speeds.saw(C, MemberPace(0.4, 0.01))


def test_each_change_makes_the_next_one_harder() -> None:
    speeds, dealt = timed(0.1, 0.1, 0.4), shares(12, 3)
    found = judge(speeds, dealt, 4 * speed.STEPS)
    assert found == [speed.STEPS - 1, 3 * speed.STEPS - 1]


@pytest.mark.parametrize(("left", "moves"), [(2, False), (1000, True)])
def test_a_change_must_repay_its_pause(left: int, moves: bool) -> None:
    assert bool(judge(timed(0.01, 0.01, 0.04), shares(12, 3), 50, left)) is moves


def test_a_step_that_could_hardly_be_shorter_is_worth_no_pause_however_many_are_left() -> None:
    speeds = timed(0.0001, 0.0001, 0.0004, updates=0.0)
    assert judge(speeds, shares(12, 3), 400, left=10_000_000) == []
    assert speeds.better_without(C, MEMBERS, 1) == ""


@pytest.mark.parametrize(
    ("others", "own", "grains", "found"),
    [(0.0001, 0.0009, 12, 0), (0.002, 0.006, 2, 0), (0.002, 0.007, 12, 1), (0.1, 0.5, 0, 1)],
)
def test_who_holds_a_step_up_by_no_more_than_steps_differ_is_no_straggler(
    others: float, own: float, grains: int, found: int
) -> None:
    """Who has few small grains takes longer for each, as the first one wakes it up."""
    speeds, dealt = timed(others, others, own), (((0, 8),), ((8, 16),), ((16, 16 + grains),))
    told = [each for _ in range(60) for each in speeds.stragglers(MEMBERS, dealt, 0.0)]
    assert len(told) == found


def test_who_is_slow_now_and_then_is_not_told_of_for_ever() -> None:
    """Whatever turns it takes: at most so often as the steps that are needed may double, and then
    once in so many."""
    speeds, chance, told = timed(0.1, 0.1, 0.1), random.Random(7), []
    for _ in range(400):
        turn = chance.choice((15, 30, 60, 300))
        for own, steps in ((0.5, turn), (0.1, 1)):
            speeds.saw(C, MemberPace(own, 0.01))
            told += [turn for _ in range(steps) if speeds.stragglers(MEMBERS, EQUAL, 0.0)]
    assert len([turn for turn in told if turn < speed.MOST_STEPS]) <= 5
    assert 300 in told, "one that stays slow is told of"


def test_what_a_move_says_that_it_saves_can_be_seen() -> None:
    speeds, dealt = timed(0.0005, 0.0005, 0.005), shares(12, 3)
    found = [move for _ in range(50) if (move := speeds.judge(MEMBERS, 12, dealt, 1_000_000))]
    assert found and found[0].reason.endswith(", 0.003 instead of 0.020 s a step")


def wired(reduce_seconds: float, dealt: Shares, *others: float) -> list[speed.Move]:
    """The moves that are proposed where the others waited for one another in their reductions."""
    speeds = speed.Speeds()
    for node, waited in zip(MEMBERS, (reduce_seconds, *others), strict=True):
        speeds.saw(node, MemberPace(0.1, 0.01, waited))
    judged = (speeds.judge(MEMBERS, 64, dealt, 1000, walks=True) for _ in range(speed.STEPS))
    return [move for move in judged if move is not None]


def test_shares_move_where_that_spares_the_wire_more_than_it_costs_work() -> None:
    dealt = shares(64, 3)
    (move,) = wired(10.0, dealt, 11.0, 11.0)
    assert sorted(counts(move.shares)) == [0, 32, 32] and "speed and the wire" in move.reason
    assert move.reason.endswith("7.644 instead of 12.200 s a step")


def test_who_waits_for_others_takes_nothing_for_the_wire() -> None:
    assert wired(10.0, shares(64, 3), 10.0, 0.5) == []


def test_where_sums_do_not_walk_shares_cannot_spare_the_wire() -> None:
    speeds = speed.Speeds()
    for node in MEMBERS:
        speeds.saw(node, MemberPace(0.1, 0.01, 10.0))
    assert not any(speeds.judge(MEMBERS, 64, shares(64, 3), 1000) for _ in range(speed.STEPS))


def test_nothing_is_judged_before_everybody_was_timed() -> None:
    assert judge(timed(0.1, 0.4), shares(12, 3), 50) == []


def test_who_computes_nothing_is_judged_by_its_updates() -> None:
    speeds = timed(0.1, 0.1, 2.0, updates=0.2)
    speeds.saw(C, MemberPace(0.0, 0.01))
    assert speeds.seconds(C) == pytest.approx(0.1)


@given(
    st.lists(st.floats(0.001, 1.0), min_size=1, max_size=5),
    st.floats(0.0001, 1.0),
    st.floats(0.00001, 1.0),
)
def test_who_computes_nothing_is_not_believed_to_be_faster_than_anybody_was(
    grains: list[float], busy: float, idle: float
) -> None:
    speeds = timed(0.1, 0.1)
    for seconds in grains:
        speeds.saw(C, MemberPace(seconds, busy))
    speeds.saw(C, MemberPace(0.0, idle))
    assert speeds.seconds(C) >= min(*grains, 0.1)


def test_no_move_promises_a_step_that_was_never_seen() -> None:
    speeds = timed(0.01, 0.01, 0.03, updates=0.005)
    speeds.saw(C, MemberPace(0.01, 0.005))
    speeds.saw(C, MemberPace(0.03, 0.005))
    without = shares(12, 3, (1.0, 1.0, 100.0))
    speeds.saw(C, MemberPace(0.0, 0.0003))  # it computes nothing, and its updates are fast now
    told = (speeds.judge(MEMBERS, 12, without, 1000) for _ in range(speed.STEPS))
    (move,) = (found for found in told if found is not None)
    assert counts(move.shares) == [4, 4, 4]
    assert "0.040 instead of 0.060 s a step" in move.reason


def test_a_straggler_is_told_of_once_until_it_is_as_fast_as_others() -> None:
    speeds = timed(0.1, 0.1, 0.5)
    told = [each for at in range(60) for each in speeds.stragglers(MEMBERS, EQUAL, 5.0 + at)]
    assert [(each.node, each.since) for each in told] == [(C, 5.0)]
    speeds.saw(C, MemberPace(0.1, 0.01))
    assert speeds.stragglers(MEMBERS, EQUAL, 70.0) == []
    speeds.saw(C, MemberPace(0.5, 0.01))
    again = [each for at in range(60) for each in speeds.stragglers(MEMBERS, EQUAL, 80.0 + at)]
    assert [(each.node, each.since) for each in again] == [(C, 80.0)]
    assert "0.500 s here and 0.100 s elsewhere" in again[0].reason


def test_a_world_is_better_off_without_a_node_whose_updates_hold_all_up() -> None:
    speeds = timed(0.1, 0.1, 0.5)
    assert speeds.better_without(C, MEMBERS, 12) == ""
    speeds.saw(C, MemberPace(0.5, 3.0))
    assert "without c" in speeds.better_without(C, MEMBERS, 12)


def test_newcomers_are_taken_to_be_as_fast_as_most() -> None:
    speeds = speed.Speeds(settled={A: 1.0, B: 3.0, C: 1.0})
    assert speeds.weights((A, B, C, NodeId("d"))) == (1.0, 3.0, 1.0, 1.0)
