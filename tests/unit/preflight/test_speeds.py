"""How fast nodes compute is judged beside the others, and what is odd is said with its cure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.preflight.seen import NodeFacts, NodeSeen
from elasticd.preflight.speeds import SIDE, SpeedSeen, judged_speeds, machines, speed_of
from elasticd.types import NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
NOW = 1e9
GOOD = SpeedSeen(A, 1000.0, "gpu", 0.02, 0.01, NOW)


@pytest.mark.parametrize(
    ("odd", "verdict", "value", "cure"),
    [
        ({}, "pass", "1000 GFLOPS (gpu), spread 2%", ""),
        ({"unix": NOW - 7200}, "pass", "spread 2%, 2 h ago", ""),
        ({"unix": NOW - 600}, "pass", "spread 2%, 10 min ago", ""),
        ({"slowed": 0.4}, "warn", "at the end 40% slower", "give it air"),
        ({"gflops": 400.0}, "warn", "where the fastest has 1000", "Low Power Mode"),
        ({"spread": 0.5}, "warn", "not steady", "End there what else computes"),
        ({"gflops": 0.0, "trains": "lm-1"}, "warn", "not measured: lm-1 runs there", "--busy"),
        ({"gflops": 0.0, "error": "no MLX"}, "fail", "no MLX", "'elasticctl doctor' on a"),
    ],
)
def test_a_speed_is_judged(odd: dict[str, Any], verdict: str, value: str, cure: str) -> None:
    found, other = judged_speeds([replace(GOOD, **odd), replace(GOOD, node=B)], NOW)
    assert (found.check, found.where, found.verdict) == ("speed", "a", verdict)
    assert value in found.value and cure in found.cure and bool(found.cure) == bool(cure)
    assert other.verdict == "pass"


def test_a_speed_is_what_most_products_had() -> None:
    second = 2 * SIDE**3 / 1e9  # of one GFLOPS
    steady = speed_of(A, "cpu", [second] * 8 + [second * 9], NOW)
    assert steady.gflops == pytest.approx(1.0) and steady.slowed == pytest.approx(0.0)
    hot = speed_of(A, "cpu", [second] * 5 + [second * 2] * 4, NOW)
    assert hot.slowed == pytest.approx(0.5) and hot.spread == pytest.approx(0.5)
    assert (hot.node, hot.device, hot.unix, hot.error) == (A, "cpu", NOW, "")


@pytest.mark.parametrize("seconds", [[], [1.0, 1.0], [1.0, 0.0, 1.0], [1.0, -1.0, 1.0]])
def test_times_that_can_not_be(seconds: list[float]) -> None:
    assert speed_of(A, "cpu", seconds, NOW).error


def node(name: NodeId, *addresses: str) -> NodeSeen:
    return NodeSeen(name, NodeFacts(addresses=addresses))


def test_nodes_on_one_machine_have_turns() -> None:
    mine = [node(A, "127.0.0.1/8"), node(B, "127.0.0.1/8"), node(C, "10.0.0.3/24")]
    assert machines(mine) == [[A, C], [B]]
    apart = [node(A, "10.0.0.1/24", "10.1.0.1/24"), node(B, "10.1.0.2/24"), node(C)]
    assert machines(apart) == [[A, B, C]]
    assert machines([]) == []
