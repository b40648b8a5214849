"""When to look whether somebody was silent for too long, and when not."""

from __future__ import annotations

from math import inf

from .peers import START, VIEW, A, B, C, Hearer


def ends(hearer: Hearer) -> list[float]:
    """When peers will be dead if nothing more is heard."""
    return sorted(hearer.liveness.silences.ends(inf))


def test_nobody_is_over_while_all_are_heard() -> None:
    hearer = Hearer()
    assert [*hearer.liveness.silences.over()] == []


def test_everyone_would_be_dead_at_some_time_if_nothing_were_heard() -> None:
    hearer = Hearer()
    floor = START + hearer.ctx.timing.silent_floor_seconds
    assert ends(hearer) == [floor] * 3


def test_whose_connection_has_closed_has_to_be_back_in_time() -> None:
    hearer = Hearer()
    hearer.part(C)
    back = START + hearer.ctx.timing.return_seconds
    assert back in ends(hearer)
    hearer.ctx.now = back
    for node in (A, B):
        hearer.beat(node, VIEW.epoch)
    assert [*hearer.liveness.silences.over()] == [C]


def test_nobody_looks_before_anybody_can_be_over() -> None:
    hearer = Hearer()
    hearer.liveness.tick()
    silences = hearer.liveness.silences
    assert not silences.due
    hearer.ctx.now = min(ends(hearer))
    assert silences.due
    silences.looked()
    hearer.liveness.silences.look_soon()
    assert silences.due


def test_who_is_met_by_a_lonely_node_is_minded_from_then_on() -> None:
    hearer = Hearer(None)
    hearer.liveness.tick()
    hearer.meet(A)
    hearer.ctx.now += hearer.ctx.timing.silent_floor_seconds - 0.1
    assert not hearer.liveness.silences.due
    hearer.ctx.now += 0.1
    assert hearer.liveness.silences.due


def test_nothing_is_worked_out_for_a_time_before_anybody_can_be_over() -> None:
    hearer = Hearer()
    hearer.liveness.tick()
    assert hearer.liveness.silences.ends(START + 0.1) == []
    assert hearer.liveness.silences.ends(START + 60.0)
