"""Which nodes a job goes on without, and when each is tried again."""

from __future__ import annotations

from math import inf

from elasticd.recovery.exactness import OUTSIDE
from elasticd.recovery.fitness import (
    Unfit,
    again,
    agree,
    clipped,
    heard,
    left_out,
    merged,
    odd_ones,
    showing_outside,
    turn_of,
)
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")
OUT = Unfit(A, 1, "no disk")


def test_the_later_turn_counts_whichever_side_merges() -> None:
    again, other = OUT.again(), Unfit(B, 3, "no data")
    assert again.turn == 2 and not again.out and again.again() == again
    assert merged([OUT], [again, other]) == merged([other, again], [OUT]) == (again, other)


def test_that_the_script_keeps_state_outside_stays_known_whatever_its_node_fails_with_later() -> (
    None
):
    """Be it that an earlier build has written the entry, or that two sides of a cut differ."""
    shown = Unfit(A, 1, f"{OUTSIDE}: in its first step", unlike=True)
    later, other = Unfit(A, 3, "KeyError", looping=True), Unfit(B, 1, "no disk")
    assert showing_outside([other, shown]) == A and showing_outside([later, other]) is None
    for one, two in (([shown], [later, other]), ([later, other], [shown])):
        both = merged(one, two)
        assert showing_outside(both) == A and left_out(both)[A] == "KeyError"
        assert showing_outside(again(both, [A])) is None, "it may show that it was one wrong bit"
        assert merged(both, one) == both == merged(two, both)
    twice = Unfit(A, 3, f"{OUTSIDE}: again", unlike=True)
    assert showing_outside([twice]) == showing_outside(again((twice,), [A])) == A
    assert merged([shown], ()) == merged([shown], [shown])
    of_chips = Unfit(A, 1, "its chip (M3) computes other bits", unlike=True)
    assert showing_outside([of_chips, Unfit(B, 1, f"KeyError: {OUTSIDE}")]) is None


def test_each_time_it_is_tried_again_later() -> None:
    pauses = [Unfit(A, turn, "").pause_seconds(60.0) for turn in (1, 3, 5, 99)]
    assert pauses == [60.0, 120.0, 240.0, 3600.0]
    assert Unfit(A, 15, "", looping=True).pause_seconds(60.0) == inf


def test_who_fails_again_and_again_gets_no_more_chances_by_others() -> None:
    assert OUT.has_another_chance(1) and not OUT.has_another_chance(0)
    assert not OUT.again().has_another_chance(1)
    assert Unfit(A, 13, "", looping=True).has_another_chance(1)
    assert not Unfit(A, 15, "", looping=True).has_another_chance(1)
    unlike = Unfit(A, 1, "", unlike=True)
    assert unlike.has_another_chance(0), "once may be one wrong bit"
    assert not Unfit(A, 3, "", unlike=True).has_another_chance(1)
    assert unlike.pause_seconds(60.0) == 60.0 and unlike.again().turn == 2


def test_who_trains_decides_else_most_else_the_first() -> None:
    prints = {A: {"data": "9"}, B: {"data": "10"}, C: {"data": "10"}}
    assert odd_ones(prints, ()) == (A,)
    assert odd_ones(prints, (A,)) == (B, C)
    assert odd_ones({n: prints[n] for n in (A, B)}, ()) == (B,)
    assert agree(prints) and not agree({A: {"data": "9"}, B: {}})


def test_of_a_long_reason_the_end_stays() -> None:
    text = clipped("it ended:\n" + "x" * 9000 + "KeyError")
    assert text.startswith("it ended:\n") and text.endswith("KeyError") and len(text) < 2300


def test_only_who_is_left_out_is_tried_again() -> None:
    entries = (OUT, Unfit(B, 2, "no data"), Unfit(C, 3, "no room"))
    assert left_out(entries) == {A: "no disk", C: "no room"}
    assert [turn_of(entries, node) for node in (A, B, C, NodeId("d"))] == [1, 2, 3, 0]
    tried = again(entries, (A, B))
    assert left_out(tried) == {C: "no room"} and turn_of(tried, A) == 2
    assert turn_of(tried, B) == 2, "it takes part already"


def test_who_hears_of_a_job_takes_part_unless_it_was_looked_at_just_before() -> None:
    foreseen = Unfit(B, 1, "its preflight fails", foreseen=True)
    entries = (OUT, foreseen)
    assert left_out(heard(entries, A)) == {B: "its preflight fails"}
    assert heard(entries, B) == entries == heard(entries, C)
    assert left_out(again(entries, [B])) == {A: "no disk"}
    assert merged([foreseen], [Unfit(B, 1, "its preflight fails")]) == (foreseen,)
