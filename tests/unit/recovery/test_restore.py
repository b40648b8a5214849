"""What a world resumes from, and under which name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery.restore import (
    Held,
    Order,
    Resume,
    best_held,
    from_survivors,
    keeps_lineage,
)
from elasticd.types import Lineage, NodeId, Point, Stamp, Tag

A, B, C, D = (NodeId(name) for name in "abcd")
OLD, NEW = Tag(3, A, "old"), Tag(7, B, "new")


def point(step: int, stamp: str = "s", lineage: str = "L") -> Point:
    return Point(Lineage(lineage), step, Stamp(f"{stamp}{step}"))


def test_the_newest_step_is_resumed() -> None:
    held = {A: Held(point(4), NEW), B: Held(point(5), NEW), C: Held(None, None)}
    assert best_held(held) == held[B]


def test_nothing_is_resumed_where_nobody_holds_anything() -> None:
    assert best_held({A: Held(None, None), B: Held(None, OLD)}) is None


def survivors(
    holdings: Mapping[NodeId, Point | None],
    best: Point,
    previous: tuple[NodeId, ...],
    limit: int = 0,
) -> Resume:
    """Nobody gives or applies updates."""
    return from_survivors(holdings, best, Order(previous, limit), {}, ())


def test_of_two_states_of_one_step_the_newer_world_s_wins() -> None:
    """The other was applied by a member that was cut off; this one may be committed."""
    stale, committed = Held(point(5, "zz"), OLD), Held(point(5, "aa"), NEW)
    assert best_held({A: stale, B: committed}) is committed
    assert best_held({A: committed, B: stale}) is committed


def test_where_two_lineages_meet_the_further_one_goes_on() -> None:
    ours, theirs = Held(point(9, lineage="ours"), OLD), Held(point(8, lineage="theirs"), NEW)
    assert best_held({A: ours, B: theirs}) is ours


def test_holders_keep_the_state_and_all_others_take_it_from_them() -> None:
    holdings = {A: point(5), B: point(4), C: point(5), D: None}
    resume = survivors(holdings, point(5), (C, B, A))
    assert resume.members == (C, B, A, D)
    assert resume.sources[0] == resume.sources[2] == "keep"
    assert {resume.sources[1], resume.sources[3]} <= {"peer:a", "peer:c"}
    assert resume.reason == "a, c hold step 5; b held something else; d held nothing"


def test_who_holds_the_state_under_another_name_keeps_it_too() -> None:
    holdings = {A: point(5, lineage="L"), B: point(5, lineage="other")}
    assert survivors(holdings, point(5), (A, B)).sources == ("keep", "keep")


def test_one_step_with_another_stamp_is_another_state() -> None:
    holdings = {A: point(5, "x"), B: point(5, "y")}
    resume = survivors(holdings, point(5, "y"), (A, B))
    assert resume.sources == ("peer:b", "keep")


def test_who_is_in_a_state_from_which_a_holder_has_the_updates_applies_them() -> None:
    holdings = {A: point(5), B: point(4, "parent"), C: point(4, "other"), D: point(3, "old")}
    gives = {A: (Stamp("old3"), Stamp("parent4"))}
    resume = from_survivors(holdings, point(5), Order((A, B, C, D)), gives, {A, B, C, D})
    assert resume.sources == ("keep", "updates:a", "peer:a", "updates:a")
    assert resume.reason == (
        "a holds step 5; b applies the updates since step 4; d applies the updates since step 3;"
        " c held something else"
    )


def test_who_can_not_apply_updates_takes_the_state() -> None:
    holdings = {A: point(5), B: point(4, "parent")}
    resume = from_survivors(holdings, point(5), Order((A, B)), {A: (Stamp("parent4"),)}, {A})
    assert resume.sources == ("keep", "peer:a")


@given(
    st.dictionaries(
        st.sampled_from([A, B, C, D]), st.none() | st.builds(point, st.integers(1, 3)), min_size=1
    ),
    st.integers(0, 3),
)
def test_a_limit_never_cuts_the_only_holders(
    holdings: dict[NodeId, Point | None], limit: int
) -> None:
    best = best_held({node: Held(held, NEW) for node, held in holdings.items()})
    if best is None or best.point is None:
        return
    resume = survivors(holdings, best.point, (A, B, C, D), limit)
    assert "keep" in resume.sources
    assert len(resume.members) == (min(limit, len(holdings)) if limit else len(holdings))
    for node, source in zip(resume.members, resume.sources, strict=True):
        assert (source == "keep") == (holdings[node] == best.point)
        if source != "keep":
            assert holdings[NodeId(source.removeprefix("peer:"))] == best.point


@pytest.mark.parametrize("size", range(1, 6))
def test_at_most_one_side_of_a_partition_keeps_the_lineage(size: int) -> None:
    last = [NodeId(f"n{number}") for number in range(size)]
    sides = chain.from_iterable(combinations(last, n) for n in range(size + 1))
    for side in sides:
        rest = [node for node in last if node not in side]
        assert keeps_lineage(last, side) != keeps_lineage(last, rest)


def test_nodes_from_elsewhere_do_not_count() -> None:
    assert not keeps_lineage([A, B, C], [C, D, NodeId("e"), NodeId("f")])
    assert keeps_lineage([A, B], [A, D])
    assert not keeps_lineage([A, B], [B, D])
