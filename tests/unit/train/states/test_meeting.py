"""Writers that each take as long as they take begin the same checkpoints now and then."""

from __future__ import annotations

import pytest

from elasticd.train.states.meeting import Meeting


def _begun(seconds: float, first: int) -> set[int]:
    """Steps up to 400 with which a writer begins that takes so many steps' time, and begins with
    ``first``; every third one is due."""
    meeting, begun, done = Meeting(), set(), 0.0
    for step in range(first, 400, 3):
        if step < done:
            meeting.miss()
        elif not meeting.leaves_out(step, 3):
            meeting.begin()
            begun.add(step)
            done = step + seconds
    return begun


@pytest.mark.parametrize("first", [0, 3, 6])
@pytest.mark.parametrize("seconds", [2.0, 3.5, 11.0, 12.5, 40.0])
def test_all_meet_at_those_of_the_slowest(seconds: float, first: int) -> None:
    slowest = _begun(50.0, 3) - {3}
    assert slowest == set(range(96, 400, 96))
    assert slowest <= _begun(seconds, first)


def test_what_is_wanted_besides_is_begun() -> None:
    meeting = Meeting()
    meeting.miss()
    assert [step for step in range(20) if not meeting.leaves_out(step, 5)] == [
        *range(5), *range(6, 15), *range(16, 20)
    ]  # fmt: skip


def test_who_is_in_time_begins_with_each() -> None:
    assert _begun(2.0, 0) == set(range(0, 400, 3))
