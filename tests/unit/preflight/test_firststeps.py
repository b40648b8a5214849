"""What a job's first step comes to is compared on a node, and between nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.preflight.firststeps import StepSeen, judged_steps, of_runs
from elasticd.types import NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
GOOD = StepSeen(A, gradient="0123456789abcdef", update="u", batch="b", weights="w")


@pytest.mark.parametrize(
    ("odd", "verdict", "value", "cure"),
    [
        ({}, "pass", "they repeat: 0123456789ab", ""),
        ({"repeats": False}, "warn", "other bits each time: 'status' will", "(ids[..., None] =="),
        ({"gradient": "x"}, "warn", "its gradients have other bits than", "elasticctl drain a"),
        ({"update": "x"}, "warn", "its updates have other bits than", "elasticctl drain a"),
        ({"weights": "x"}, "warn", "begins with other weights", "mx.random.seed"),
        ({"batch": "x"}, "fail", "its first samples are others", "the same data"),
        ({"gradient": "", "trains": "lm-1"}, "warn", "not tried: lm-1 runs there", "--busy"),
        ({"gradient": "", "short": "1 GiB"}, "warn", "not tried: 1 GiB", "End there what else"),
        ({"gradient": "", "error": "KeyError: 'x'"}, "fail", "KeyError: 'x'", "Mend the script"),
    ],
)
def test_a_first_step_is_judged(odd: dict[str, Any], verdict: str, value: str, cure: str) -> None:
    seen = [replace(GOOD, **odd), replace(GOOD, node=B), replace(GOOD, node=C)]
    found, *others = judged_steps(seen, exact=False)
    assert (found.check, found.where, found.verdict) == ("gradients", "a", verdict)
    assert value in found.value and cure in found.cure and bool(found.cure) == bool(cure)
    assert {other.verdict for other in others} == {"pass"}


@pytest.mark.parametrize("odd", [{"repeats": False}, {"gradient": "x"}, {"update": "x"}])
def test_where_the_job_wants_exact_bits_others_fail(odd: dict[str, Any]) -> None:
    seen = [replace(GOOD, **odd), replace(GOOD, node=B), replace(GOOD, node=C)]
    found = next(judged_steps(seen, exact=True))
    assert found.verdict == "fail" and "require_exact" in found.value and found.cure


def test_updates_that_agree_on_the_cpu_are_made_there() -> None:
    seen = [replace(GOOD, node=node, cpu_update="c") for node in (B, C)]
    odd = replace(GOOD, update="x", cpu_update="c")
    for exact in (False, True):
        found, *others = judged_steps([odd, *seen], exact=exact)
        assert found.verdict == "warn" and "all nodes make them there" in found.value
        assert {other.verdict for other in others} == {"pass"}
    for other in (replace(odd, cpu_update="d"), replace(odd, cpu_update="")):
        found = next(judged_steps([other, *seen], exact=True))
        assert found.verdict == "fail" and "require_exact" in found.value


def test_one_that_does_not_repeat_is_no_measure_for_others() -> None:
    odd = [replace(GOOD, node=n, repeats=False, gradient="x") for n in (B, C)]
    first, *others = judged_steps([GOOD, *odd], exact=False)
    assert first.verdict == "pass" and {other.verdict for other in others} == {"warn"}


def test_a_process_that_ends_otherwise_does_not_repeat() -> None:
    assert of_runs([GOOD, GOOD]) == GOOD
    assert not of_runs([GOOD, replace(GOOD, gradient="x")]).repeats
    assert not of_runs([GOOD, replace(GOOD, update="x")]).repeats
    assert not of_runs([GOOD, replace(GOOD, cpu_update="x")]).repeats
    assert not of_runs([GOOD, replace(GOOD, repeats=False)]).repeats
    elsewhere = replace(GOOD, weights="x", gradient="x", update="x")
    assert of_runs([GOOD, elsewhere]) == GOOD, "it began with other weights"
