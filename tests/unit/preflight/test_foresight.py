"""A new job does without nodes on which its preflight fails, unless too few were left."""

from __future__ import annotations

import pytest

from elasticd.preflight.finding import ProbeVerdict
from elasticd.preflight.foresight import fails, unfit_nodes
from elasticd.preflight.nodes import CheckResult
from elasticd.types import NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ABLE = (A, B, C)


def check(name: str, where: str, verdict: ProbeVerdict = "fail") -> CheckResult:
    return CheckResult(name, where, verdict, "a value", "" if verdict == "pass" else "A cure")


def test_a_node_on_which_a_check_fails_is_left_out_with_the_cure() -> None:
    stored = [check("packages", B), check("data", B), check("packages", A, "warn")]
    assert unfit_nodes(stored, [], [], ABLE, 2) == {
        B: "its preflight fails: packages: a value. A cure."
    }
    assert fails(stored, ABLE) and not fails(stored, [A, C])


@pytest.mark.parametrize(
    "no_node",
    [check("link", "a > b"), check("world", "the job"), check("answers", B), check("disk", "away")],
)
def test_what_is_of_no_node_that_is_here_leaves_none_out(no_node: CheckResult) -> None:
    assert unfit_nodes([no_node], [], [], ABLE, 1) == {}


def test_what_a_node_says_now_counts_instead() -> None:
    stored = [check("packages", B), check("packages", C)]
    fresh = [check("packages", B, "pass"), check("disk", A)]
    assert unfit_nodes(stored, fresh, [A, B], ABLE, 1).keys() == {A, C}


def test_a_first_step_is_not_made_anew() -> None:
    stored = [check("gradients", B)]
    assert unfit_nodes(stored, [check("packages", B, "pass")], [B], ABLE, 1).keys() == {B}


@pytest.mark.parametrize(("least", "left_out"), [(1, {B}), (2, {B}), (3, set[NodeId]())])
def test_a_job_is_not_kept_from_starting(least: int, left_out: set[NodeId]) -> None:
    assert unfit_nodes([check("packages", B)], [], [], ABLE, least).keys() == left_out


def test_not_all_are_left_out() -> None:
    assert unfit_nodes([check("packages", node) for node in ABLE], [], [], ABLE, 0) == {}
