"""The tree's order must not depend on who computes what, or when. Sums here are expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery import tree
from elasticd.types import Range


def add(left: str, right: str) -> str:
    return f"({left}+{right})"


def leaf(grain: int) -> str:
    return f"g{grain}"


def plain(node: Range) -> str:
    """The definition, as simply as it can be written."""
    start, end = node
    if end - start == 1:
        return leaf(start)
    half = 1
    while half * 2 < end - start:
        half *= 2
    return add(plain((start, start + half)), plain((start + half, end)))


def runs(grains: list[int]) -> list[Range]:
    """Grains as one range each: ``cover`` must join them."""
    return [(grain, grain + 1) for grain in grains]


@given(st.data())
def test_any_shares_in_any_order_give_the_same_expression(data: st.DataObject) -> None:
    grains = data.draw(st.integers(1, 40))
    ranks = data.draw(st.integers(1, 6))
    owner = [data.draw(st.integers(0, ranks - 1)) for _ in range(grains)]
    parts: dict[Range, str] = {}
    for rank in range(ranks):
        mine = [grain for grain in range(grains) if owner[grain] == rank]
        wanted = tree.cover(runs(mine), grains)
        sums: dict[Range, str] = {}
        for grain in data.draw(st.permutations(mine)):
            sums[grain, grain + 1] = leaf(grain)
            tree.merge(sums, wanted, add)
        assert set(sums) == set(wanted)
        parts |= sums
    order = data.draw(st.permutations(sorted(parts)))
    shuffled = {node: parts[node] for node in order}
    assert tree.finish(shuffled, (0, grains), add) == plain((0, grains))


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 200))
def test_a_run_is_covered_by_few_nodes(grains: int, one: int, other: int) -> None:
    start, end = sorted((min(one, grains), min(other, grains)))
    nodes = tree.cover([(start, end)], grains)
    covered = [grain for node in nodes for grain in range(*node)]
    assert covered == list(range(start, end))
    assert len(nodes) <= 2 * grains.bit_length()


@given(st.integers(1, 64))
def test_in_order_completion_holds_one_sum_a_level(grains: int) -> None:
    sums: dict[Range, str] = {}
    most = 0
    for grain in range(grains):
        sums[grain, grain + 1] = leaf(grain)
        tree.merge(sums, [(0, grains)], add)
        most = max(most, len(sums))
    assert sums == {(0, grains): plain((0, grains))}
    assert most <= grains.bit_length()


@pytest.mark.parametrize(
    ("node", "halves"),
    [
        ((0, 2), ((0, 1), (1, 2))),
        ((0, 8), ((0, 4), (4, 8))),
        ((0, 9), ((0, 8), (8, 9))),
        ((4, 7), ((4, 6), (6, 7))),
    ],
)
def test_a_node_splits_after_a_power_of_two(node: Range, halves: tuple[Range, Range]) -> None:
    assert tree.children(node) == halves


@pytest.mark.parametrize("ranges", [[(0, 2), (1, 3)], [(3, 9)], [(-1, 2)], [(3, 2)]])
def test_ranges_that_are_no_share_are_refused(ranges: list[Range]) -> None:
    with pytest.raises(ValueError, match="overlaps or leaves"):
        tree.cover(ranges, 8)


@pytest.mark.parametrize("missing", [(0, 4), (4, 6), (6, 7)])
def test_a_gap_is_refused(missing: Range) -> None:
    parts = {node: plain(node) for node in ((0, 4), (4, 6), (6, 7)) if node != missing}
    with pytest.raises(ValueError, match="in no part"):
        tree.finish(parts, (0, 7), add)


@pytest.mark.parametrize("extra", [(0, 1), (2, 4), (6, 8), (0, 8)])
def test_an_overlap_is_refused(extra: Range) -> None:
    parts = {node: plain(node) for node in ((0, 4), (4, 6), (6, 7), extra)}
    with pytest.raises(ValueError, match="parts overlap"):
        tree.finish(parts, (0, 7), add)


def test_nothing_is_merged_beyond_what_is_wanted() -> None:
    sums = {(grain, grain + 1): leaf(grain) for grain in range(4)}
    tree.merge(sums, [(0, 2)], add)
    assert set(sums) == {(0, 2), (2, 3), (3, 4)}
