"""Shares of grains: complete, balanced, cheap to exchange, and kept where work has begun."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery.regroup import (
    Shares,
    check_shares,
    reshare,
    shares,
    step_seconds,
    vectors_sent,
)
from elasticd.recovery.tree import cover
from elasticd.types import NodeId, Range

NAMES = [NodeId(f"n{number}") for number in range(8)]
grain_counts = st.integers(1, 40)
sizes = st.integers(1, 8)


def grains_of(share: tuple[Range, ...]) -> set[int]:
    return {grain for start, end in share for grain in range(start, end)}


def weights(dealt: Shares) -> list[int]:
    return [len(grains_of(share)) for share in dealt]


@given(grain_counts, sizes)
def test_shares_are_complete_and_balanced(grains: int, size: int) -> None:
    dealt = shares(grains, size)
    check_shares(grains, dealt)
    assert len(dealt) == size
    assert max(weights(dealt)) == -(-grains // size)


@pytest.mark.parametrize(("grains", "size"), [(8, 3), (12, 3), (16, 3), (13, 4), (10, 4)])
def test_cuts_fall_where_shares_are_few_nodes(grains: int, size: int) -> None:
    """As good as the best of all cuts that are as balanced."""
    largest = -(-grains // size)
    costs = []
    for inner in combinations_with_replacement(range(grains + 1), size - 1):
        cuts = (0, *inner, grains)
        if max(end - start for start, end in pairwise(cuts)) <= largest:
            nodes = [len(cover([(start, end)], grains)) for start, end in pairwise(cuts)]
            costs.append((max(nodes), sum(nodes)))
    found = [len(cover(share, grains)) for share in shares(grains, size)]
    assert (max(found), sum(found)) == min(costs)


@given(grain_counts, sizes, st.sampled_from([0.1, 1.0, 4.0, 20.0]))
def test_work_and_wire_are_one_cost(grains: int, size: int, wire: float) -> None:
    pace = (1.0,) * size
    dealt, usual = shares(grains, size, (), wire), shares(grains, size)
    check_shares(grains, dealt)
    assert step_seconds(dealt, pace, wire) <= step_seconds(usual, pace, wire)
    assert vectors_sent(dealt) <= vectors_sent(usual)


def test_a_slow_wire_gives_shares_that_send_less() -> None:
    assert weights(shares(64, 3, (), 1.0)) == weights(shares(64, 3))
    assert sorted(weights(shares(64, 3, (), 4.0))) == [16, 24, 24]
    assert vectors_sent(shares(64, 3, (), 4.0)) == 2.0 < 2.8 < vectors_sent(shares(64, 3))


def test_a_batch_of_many_grains_is_cut_without_a_search() -> None:
    dealt = shares(60_000, 7)
    check_shares(60_000, dealt)
    assert max(weights(dealt)) - min(weights(dealt)) <= 1


@given(grain_counts, sizes, st.data())
def test_who_had_begun_keeps_its_share_and_the_rest_is_dealt_out(
    grains: int, size: int, data: st.DataObject
) -> None:
    before = shares(grains, size)
    members = data.draw(st.lists(st.sampled_from(NAMES[:size]), min_size=1, unique=True))
    newcomers = data.draw(
        st.lists(st.sampled_from(NAMES[size:]), unique=True) if size < 8 else st.just([])
    )
    kept = {node: before[NAMES.index(node)] for node in members}
    after = reshare(grains, kept, [*members, *newcomers])
    check_shares(grains, after)
    for node, share in zip(members, after, strict=False):
        assert grains_of(before[NAMES.index(node)]) <= grains_of(share)


def test_the_lost_grains_go_to_those_who_have_least() -> None:
    kept = {NAMES[0]: ((0, 4),), NAMES[1]: ((4, 6),)}
    after = reshare(8, kept, [NAMES[0], NAMES[1], NAMES[2]])
    assert weights(after) == [4, 2, 2]
    assert grains_of(after[2]) == {6, 7}


def test_a_step_that_nobody_has_begun_is_dealt_out_afresh() -> None:
    assert reshare(8, {}, NAMES[:3]) == shares(8, 3)


@pytest.mark.parametrize(
    ("dealt", "part"),
    [
        ((((0, 4),), ((3, 8),)), "grain 3 is owned twice or never"),
        ((((0, 3),), ((4, 8),)), "grain 3 is owned twice or never"),
        ((((0, 7),),), "grains from 7 on are owned by nobody"),
        ((((0, 9),),), "grains from 9 on"),
        ((), "grains from 0 on are owned by nobody"),
    ],
)
def test_shares_that_do_not_fit_are_refused(dealt: Shares, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        check_shares(8, dealt)
