"""Sums that walk the ring are those of the tree, whoever has which parts. Sums are expressions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery import tree, walk
from elasticd.recovery.regroup import shares
from elasticd.types import Range

Parts = tuple[tuple[Range, ...], ...]


def add(left: str, right: str) -> str:
    return f"({left}+{right})"


def whole(node: Range) -> str:
    leaves = {(grain, grain + 1): f"g{grain}" for grain in range(*node)}
    return tree.finish(leaves, node, add)


def run(parts: Parts, grains: int) -> list[dict[int, str]]:
    """Every rank's whole sections, with messages that only neighbours exchange."""
    size = len(parts)
    plans = [walk.hops(parts, grains, rank) for rank in range(size)]
    finished: list[dict[int, str]] = [{} for _ in range(size)]
    wires: list[list[tuple[int, Range, str]]] = [[] for _ in range(size)]
    for number in range(2 * size - 1):
        arrived, wires = wires, [[] for _ in range(size)]
        for rank, hop in enumerate(hops[number] for hops in plans):
            came = arrived[rank]
            assert [(section, node) for section, node, _ in came] == [
                (hop.section, node) for node in hop.takes
            ]
            held = {node: text for _, node, text in came}
            if number < size:
                held |= {node: whole(node) for node in parts[rank]}
            for left, right in hop.adds:
                assert tree.children((left[0], right[1])) == (left, right)
                held[left[0], right[1]] = add(held.pop(left), held.pop(right))
            if hop.whole:
                assert set(held) == {(0, grains)}
                finished[rank][hop.section] = held[0, grains]
            if hop.sends:
                assert set(held) == set(hop.sends)
            wires[(rank + 1) % size] = [(hop.section, node, held[node]) for node in hop.sends]
    assert not any(wires)
    return finished


@given(st.data())
def test_any_shares_give_the_expression_of_the_tree(data: st.DataObject) -> None:
    grains, size = data.draw(st.integers(1, 40)), data.draw(st.integers(2, 8))
    owner = [data.draw(st.integers(0, size - 1)) for _ in range(grains)]
    parts = tuple(
        tree.cover([(g, g + 1) for g in range(grains) if owner[g] == rank], grains)
        for rank in range(size)
    )
    expected = whole((0, grains))
    for sections in run(parts, grains):
        assert sections == dict.fromkeys(range(size), expected)


@pytest.mark.parametrize("size", range(2, 9))
@pytest.mark.parametrize("grains", [1, 8, 12, 64])
def test_the_shares_of_the_planner_do_too(size: int, grains: int) -> None:
    parts = dealt(grains, size)
    for sections in run(parts, grains):
        assert sections == dict.fromkeys(range(size), whole((0, grains)))


@pytest.mark.parametrize("size", range(2, 9))
def test_a_chain_adds_every_rank_once_and_sends_one_sum(size: int) -> None:
    plans = [walk.chain(size, rank) for rank in range(size)]
    for rank, hops in enumerate(plans):
        assert sum(len(hop.sends) for hop in hops) == 2 * (size - 1)
        assert {hop.section for hop in hops if hop.whole} == set(range(size))
        left = plans[rank - 1]
        for before, hop in itertools.pairwise(range(2 * size - 1)):
            assert hops[hop].takes == left[before].sends
            assert not hops[hop].takes or hops[hop].section == left[before].section
    for section in range(size):
        added = {(0, 1): {section}}
        for hop in range(1, size):
            rank = (section + hop) % size
            ((one, other),) = plans[rank][hop].adds
            assert plans[rank][hop].own == (other,)
            added = {plans[rank][hop].sends[0]: added[one] | {rank}}
        assert added == {(0, size): set(range(size))}


@pytest.mark.parametrize("size", range(2, 9))
def test_what_is_sent_is_counted(size: int) -> None:
    parts = dealt(12, size)
    counted = [sum(len(hop.sends) for hop in walk.hops(parts, 12, rank)) for rank in range(size)]
    assert walk.sections_sent(parts, 12) == tuple(counted)


def dealt(grains: int, size: int) -> Parts:
    return tuple(tree.cover(share, grains) for share in shares(grains, size))


@pytest.mark.parametrize(
    ("size", "grains", "times"),
    [(2, 8, 1), (2, 64, 1), (3, 8, 1.5), (3, 16, 1.5), (4, 8, 1.25), (4, 64, 1.25), (8, 64, 1.58)],
)
def test_little_more_travels_than_in_a_ring_all_reduce(
    size: int, grains: int, times: float
) -> None:
    sent = walk.sections_sent(dealt(grains, size), grains)
    assert sum(sent) / (size * 2 * (size - 1)) <= times


def test_parts_that_do_not_make_the_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="not all of 4 grains"):
        walk.hops((((0, 2),), ((2, 3),)), 4, 0)
