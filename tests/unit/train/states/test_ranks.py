"""What each rank has of its own: places, values, limits."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import UsageError
from elasticd.train.states.ranks import FIRST_PLACE, MOST_BYTES, NEW, NOTHING, Ranks, places


def at(*found: int) -> list[int]:
    return [FIRST_PLACE + place for place in found]


def test_who_is_new_takes_what_was_left_and_else_a_place_of_its_own() -> None:
    assert places([NEW, NEW, NEW], ()) == [0, 1, 2]
    assert places([*at(1), NEW, NEW], (0, 1)) == [1, 0, 2]
    assert places([NEW, *at(0, 2)], (0, 1, 2)) == [1, 0, 2]
    assert places([NEW, NOTHING, *at(4)], ()) == [0, None, 4]


def test_of_two_that_claim_a_place_the_lower_rank_has_it() -> None:
    """Two sides of a partition have each given it away; nobody's values are lost by that."""
    assert places([*at(1, 1), NEW], (0, 1)) == [1, 2, 0]


@given(st.lists(st.integers(0, 6), max_size=6), st.sets(st.integers(0, 6)))
def test_places_are_each_ones_own(said: list[int], left: set[int]) -> None:
    found = places(said, left)
    taken = [place for place in found if place is not None]
    assert len(set(taken)) == len(taken)
    for word, place in zip(said, found, strict=True):
        assert (place is None) == (word == NOTHING)


def with_things(**things: Any) -> Ranks:
    made = Ranks()
    for name, thing in things.items():
        made.track(name, thing)
    made.hold()
    return made


def world(*ranks: Ranks) -> None:
    """They train together for one step."""
    said = [each.word for each in ranks]
    for rank, each in enumerate(ranks):
        each.take_place(said, rank)
    messages = [each.message for each in ranks]
    for each in ranks:
        each.believe(each.hear(messages))
    assert len({str(each.state_dict()) for each in ranks}) == 1


def test_values_of_every_kind_come_back() -> None:
    def thing() -> dict[Any, Any]:
        return {
            "number": 3,
            "text": "é",
            "none": None,
            "flag": True,
            "big": 1 << 100,
            "list": [1, (2.5,)],
            "float": mx.array([1.5, 2.5]),
            "half": mx.array([0.5], mx.bfloat16),
            "scalar": mx.array(7),
            "bools": mx.array([True, False]),
            "empty": mx.zeros((0, 3)),
            "numpy": np.arange(6).reshape(2, 3),
            1: "a number as a key",
        }

    gone, mine = thing(), {"number": 0}
    first, left = with_things(x=mine), with_things(x=gone)
    world(first, left)
    heir: dict[str, Any] = {}
    fresh = with_things(x=heir)
    fresh.load_state_dict(first.state_dict())
    world(fresh, first)
    assert mine == {"number": 0}
    wanted = thing()
    assert heir.keys() == wanted.keys()
    for key, value in wanted.items():
        if isinstance(value, mx.array):
            assert (heir[key].dtype, heir[key].shape) == (value.dtype, value.shape)
            assert mx.array_equal(heir[key], value)
        else:
            assert np.all(heir[key] == value), key


def test_what_has_not_changed_is_not_told_again() -> None:
    seen = {"n": 1}
    one, other = with_things(x=seen), with_things(x={"n": 5})
    world(one, other)
    assert one.message == other.message == b""
    seen["n"] = 2
    one.hold()
    assert one.message and not other.message
    world(one, other)
    assert one.message == b""


def test_what_all_have_told_can_be_read_by_name() -> None:
    one, other, third = with_things(x={"n": 1}, y=[2]), with_things(x={"n": 5}), with_things(y=[1])
    assert one.told_under("x") == []
    world(one, other, third)
    assert one.told_under("x") == third.told_under("x") == [{"n": 1}, {"n": 5}, None]
    world(one, other)
    assert one.told_under("y") == [[2], None, [1]], "of who is gone what it told last"


def test_a_body_that_does_not_count_leaves_nothing() -> None:
    seen = {"n": 1}
    made = with_things(x=seen)
    seen["n"] = 2
    made.put_back()
    assert seen == {"n": 1}


def test_a_job_that_goes_back_takes_them_along() -> None:
    seen, others = {"n": 1}, {"n": 5}
    one, other = with_things(x=seen), with_things(x=others)
    world(other, one)
    saved = one.state_dict()
    seen["n"], others["n"] = 2, 6
    for each in (one, other):
        each.hold()
    world(one, other)
    for each in (one, other):
        each.load_state_dict(saved)
        each.go_back()
    assert (seen, others) == ({"n": 1}, {"n": 5})


def test_of_what_nobody_was_told_then_each_has_what_it_began_with() -> None:
    """The state is of a step before the first that was told, or before this process came."""
    seen, later = {"n": 1}, {"n": 5}
    one, other = with_things(x=seen), with_things(x=later)
    nothing = one.state_dict()
    world(one)
    alone = one.state_dict()
    other.load_state_dict(alone)
    world(one, other)
    for n in (2, 3):
        seen["n"], later["n"] = n, n + 4
        for each in (one, other):
            each.hold()
        world(one, other)
    other.load_state_dict(alone)
    other.go_back()
    assert later == {"n": 5} and other.message
    one.load_state_dict(nothing)
    one.go_back()
    assert seen == {"n": 1} and one.message


def test_what_is_too_big_is_named() -> None:
    made = Ranks()
    made.track("cursor", {"at": 1})
    made.track("buffer", {"rows": mx.zeros((MOST_BYTES // 4 + 1,))})
    with pytest.raises(UsageError, match=r"run.track\('buffer', …, per_rank=True\): it has 10486"):
        made.hold()


def test_who_tracks_nothing_has_no_place() -> None:
    made = Ranks()
    made.hold()
    made.put_back()
    made.take_place([NOTHING], 0)
    assert not made.anybody and made.message == b"" and not made.state_dict()
