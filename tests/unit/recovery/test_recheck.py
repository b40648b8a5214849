"""One grain on several nodes, and the odd one out."""

from __future__ import annotations

from collections import Counter

from elasticd.recovery.recheck import choose, judge
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")
SHARES = (((0, 3),), ((5, 8),), ((3, 5),), ())


def test_only_every_so_many_steps_and_never_alone() -> None:
    assert [step for step in range(1, 13) if choose(1, step, 4, SHARES)] == [4, 8, 12]
    assert choose(1, 4, 0, SHARES) is None, "off"
    assert choose(1, 4, 4, (((0, 8),),)) is None


def test_every_grain_and_every_checker_has_its_turn() -> None:
    grains: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for step in range(1, 600):
        check = choose(7, step, 1, SHARES)
        assert check is not None and len(set(check.ranks)) == 3
        (owner,) = (r for r, s in enumerate(SHARES) for a, b in s if a <= check.grain < b)
        assert check.owner == owner
        grains[check.grain] += 1
        pairs.update((owner, checker) for checker in check.checkers)
    assert sorted(grains) == list(range(8)) and min(grains.values()) > 40
    assert len(pairs) == 3 * 3, "also who computes nothing else may check"


def test_a_world_of_two_has_one_checker() -> None:
    check = choose(1, 5, 5, (((0, 4),), ((4, 8),)))
    assert check is not None and sorted(check.ranks) == [0, 1]


def test_the_odd_one_is_named() -> None:
    assert judge({A: "x", B: "x", C: "x"}, 3, 40) is None
    found = judge({A: "x", B: "y", C: "x"}, 3, 40)
    assert found is not None and found.odd == B
    assert found.reason == (
        "grain 3 of step 40 was computed again and has other bits here than on 2 others: a x, b y,"
        " c x"
    )


def test_of_two_or_three_different_ones_nobody_is_blamed() -> None:
    for digests in ({A: "x", B: "y"}, {A: "x", B: "y", C: "z"}):
        found = judge(digests, 3, 40)
        assert found is not None and found.odd is None and "no telling" in found.reason
