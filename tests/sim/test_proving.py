"""Scripts that keep state outside of their run: who joins is left out, and the job goes on."""

from __future__ import annotations

from typing import Any

import pytest

from .cluster import JobShape, Setup
from .planted import BUGS, hunt
from .run import simulate


def setup(kind: str, seed: int, **changes: Any) -> Setup:
    shape = JobShape(steps=60, outside=kind)
    given: dict[str, Any] = {
        "nodes": 3,
        "jobs": (shape,),
        "fault_seconds": 6.0,
        "fault_kinds": ("trainer", "reducer"),
        **changes,
    }
    return Setup(seed=seed, **given)


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_who_computes_something_else_is_left_out(kind: str) -> None:
    unfit = 0
    for seed in range(8):
        result = simulate(setup(kind, seed))
        assert not result.problem, (seed, result.problem)
        unfit += sum("event node_unfit: the script keeps" in line for line in result.transcript)
    assert unfit


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_whatever_breaks(kind: str) -> None:
    kinds = ("trainer", "trainers", "daemon", "node", "oom", "hang", "silence", "power_cut")
    for seed in range(12):
        result = simulate(setup(kind, seed, fault_kinds=kinds, nodes=4))
        assert not result.problem, (seed, result.problem)


def test_nobody_is_left_out_whose_state_is_where_it_belongs() -> None:
    for seed in range(12):
        result = simulate(setup("", seed, fault_kinds=("trainer", "daemon", "node", "stop_node")))
        assert not result.problem, (seed, result.problem)
        assert not any("node_unfit" in line for line in result.transcript), seed


def test_a_checker_sees_a_newcomer_that_is_believed() -> None:
    (bug,) = (bug for bug in BUGS if "newcomer whatever" in bug.name)
    assert hunt(bug).problem
