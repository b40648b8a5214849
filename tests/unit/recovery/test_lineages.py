"""Which history goes on where several meet."""

from __future__ import annotations

from collections.abc import Callable

from elasticd.recovery.lineages import ancestry, is_left, merged, partings, remaining
from elasticd.types import Lineage, Point, Stamp

ONE, TWO, THREE = Lineage("one"), Lineage("two"), Lineage("three")


def at(lineage: Lineage, step: int) -> Point:
    return Point(lineage, step, Stamp(f"{lineage}{step}"))


def family(**parents: Point) -> Callable[[Lineage], Point | None]:
    return lambda lineage: parents.get(lineage)


def test_a_state_that_was_gone_through_is_only_behind() -> None:
    parents = family(two=at(ONE, 10))
    assert partings([at(ONE, 8), at(TWO, 12)], at(TWO, 30), parents) == []


def test_two_sides_of_a_cut() -> None:
    parents = family(two=at(ONE, 10))
    (parting,) = partings([at(ONE, 30), at(TWO, 20), at(TWO, 18)], at(ONE, 30), parents)
    assert (parting.left, parting.step, parting.since, parting.after) == (TWO, 20, 10, -1)
    (parting,) = partings([at(ONE, 20), at(TWO, 30)], at(TWO, 30), parents)
    assert (parting.left, parting.step, parting.since, parting.after) == (ONE, 20, 10, 10)
    assert parting.reason == (
        "lineage two goes on from step 30; one, which parted from it after step 10 and came to"
        " step 20, is left"
    )


def test_cousins_part_where_the_older_one_left() -> None:
    parents = family(two=at(ONE, 10), three=at(ONE, 14))
    (parting,) = partings([at(TWO, 20), at(THREE, 30)], at(THREE, 30), parents)
    assert (parting.left, parting.since, parting.after) == (TWO, 10, -1)


def test_an_ancestor_counts_no_further_than_its_heir() -> None:
    parents = family(three=at(TWO, 5), two=at(ONE, 10))
    assert ancestry(at(THREE, 30), parents) == {THREE: 30, TWO: 5, ONE: 5}


def test_what_either_side_left_is_left() -> None:
    left = merged(((ONE, 10),), ((ONE, 7), (TWO, -1)))
    assert left == ((ONE, 7), (TWO, -1))
    assert merged(left, ()) == left == merged((), left)
    assert is_left(left, ONE, 8) and not is_left(left, ONE, 7)
    assert is_left(left, TWO, 0) and not is_left(left, THREE, 99)


def test_nothing_is_left_of_stores_without_stored_states() -> None:
    assert remaining({}, ((ONE, 3),)) == {}
