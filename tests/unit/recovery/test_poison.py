"""Poison and divergence: who is to blame, the input, a node, or nobody."""

from __future__ import annotations

import pytest

from elasticd.recovery.divergence import compare
from elasticd.recovery.poison import Deaths
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")


def test_the_same_signal_on_every_node() -> None:
    deaths = Deaths()
    deaths.took(A, -6, 12)
    deaths.took(B, 134, 12)
    assert deaths.verdict([A, B, C]) == ""
    deaths.took(C, -6, 12)
    assert "step 12 ends every trainer that computes it: signal 6 on a, b, c" in deaths.verdict(
        [A, B, C]
    )


def test_progress_signals_and_kills_from_outside_are_no_poison() -> None:
    deaths = Deaths()
    for node in (A, B, C):
        deaths.took(node, -9, 12)
    assert deaths.verdict([A, B, C]) == ""
    deaths.took(A, -6, 12)
    deaths.took(B, -11, 12)
    deaths.took(C, -6, 12)
    assert deaths.verdict([A, B, C]) == "", "two causes"
    for step, node in enumerate((A, B, C)):
        deaths.took(node, -11, step)
    assert deaths.verdict([A, B, C]) == "", "other steps"


def test_one_node_alone_needs_three_deaths() -> None:
    deaths = Deaths()
    for _ in range(2):
        deaths.took(A, -11, 4)
    assert deaths.verdict([A]) == ""
    deaths.took(A, -11, 4)
    assert "3 times" in deaths.verdict([A])


def test_equal_digests_are_fine() -> None:
    assert compare({A: "x", B: "x"}, 8) is None
    with pytest.raises(ValueError, match="no digests"):
        compare({}, 8)


def test_the_majority_is_right() -> None:
    found = compare({A: "x", B: "y", C: "x"}, 8)
    assert found is not None
    assert (found.odd, found.majority) == ((B,), True)
    assert "after step 8: a x, b y, c x" in found.reason


@pytest.mark.parametrize("digests", [{A: "x", B: "y"}, {A: "x", B: "y", C: "z"}])
def test_without_a_majority_nobody_is_trusted(digests: dict[NodeId, str]) -> None:
    found = compare(digests, 8)
    assert found is not None
    assert (found.odd, found.majority) == ((), False)
