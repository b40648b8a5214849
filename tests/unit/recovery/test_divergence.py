"""Whether a node has computed wrongly, or the script keeps by rank what is to be alike."""

from __future__ import annotations

import pytest

from elasticd.recovery.divergence import MODEL_PART, Unlike, by_chip, compare, unlike
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")


def told(models: str, things: str) -> dict[NodeId, dict[str, str]]:
    """Of A, B and C; a dot: it isn't there."""
    return {
        node: {MODEL_PART: model} | ({"x": thing} if thing != "." else {})
        for node, model, thing in zip((A, B, C), models, things, strict=True)
    }


def test_a_thing_that_differs_where_models_are_alike_is_the_scripts() -> None:
    assert unlike(told("mmm", "xyx")) == Unlike("x", {A: "x", B: "y", C: "x"})
    assert unlike(told("mmm", "x.x")) == Unlike("x", {A: "x", B: "", C: "x"})


def test_where_models_differ_or_are_not_told_it_is_not() -> None:
    assert unlike(told("mnm", "xyx")) is None
    assert unlike(told("mmm", "xxx")) is None
    assert unlike({}) is None
    assert unlike({A: {}, B: {"x": "y"}}) is None
    assert unlike(told("mmm", "xyz") | {C: {}}) is None, "one of an earlier version"


def test_a_comparison_tells_it_beside_the_majority() -> None:
    digests = {A: "1", B: "2", C: "1"}
    found = compare(digests, 3, told("mmm", "xyx"))
    assert found is not None and found.unlike is not None
    assert (found.odd, found.majority, found.unlike.name) == ((B,), True, "x")
    found = compare({A: "1", B: "2"}, 3)
    assert found is not None and found.unlike is None and not found.majority
    assert compare({A: "1", B: "1"}, 3) is None


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


@pytest.mark.parametrize(
    ("digests", "chips", "found"),
    [
        ("xy", ("M1", "M3"), (A, B)),
        ("xyx", ("M1", "M3", "M1"), (A, B)),
        ("xxy", ("M1", "M2", "M3"), (A, C)),
        ("xyz", ("M1", "M3", "M1"), None),
        ("xyy", ("M1", "M1", "M3"), None),
        ("xy", ("M1", "M1"), None),
        ("xy", ("M1", ""), None),
        ("xx", ("M1", "M3"), None),
        ("x", ("M1",), None),
    ],
)
def test_chips_explain_what_all_of_a_kind_have_alike(
    digests: str, chips: tuple[str, ...], found: tuple[NodeId, NodeId] | None
) -> None:
    told, named = (dict(zip((A, B, C), each, strict=False)) for each in (digests, chips))
    assert by_chip(told, named) == found
