"""Strangers that take links of rings which come up: told as that, and no more than that."""

from __future__ import annotations

import pytest

from .cluster import JobShape, Setup, Strike
from .run import Result, simulate
from .seeds import setup_of
from .test_sim import job_events, passes


def faults(result: Result) -> list[tuple[str, str]]:
    """Which were told, and where: a stranger by the sign, for the fault is a lost link."""
    told = job_events(result, "fault_detected")
    names = ["stranger" if f["sign"] == "stranger" else f["fault"] for f in told]
    return [(name, f["culprit"]) for name, f in zip(names, told, strict=True)]


def strange(seed: int, releases: tuple[str, ...] = ()) -> Result:
    """Three nodes, to which strangers come a few times, the first ones as training begins."""
    strikes = tuple(Strike(number, 0.1 + 2.0 * number, "stranger") for number in range(4))
    shape = JobShape(steps=60, world_min=2)
    return passes(
        simulate(
            Setup(seed=seed, jobs=(shape,), fault_seconds=9.0, strikes=strikes, releases=releases)
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_strangers_are_told_where_they_are_and_no_ring_hangs(seed: int) -> None:
    """But where a reducer is killed, so that a ring comes up, nothing else is seen."""
    result = strange(seed)
    told = faults(result)
    assert {fault for fault, _ in told} <= {"stranger", "reducer_lost", "link_lost"}, told
    assert result.cluster.seen["strangers"] and "stranger" in dict(told), told


@pytest.mark.parametrize("seed", range(2))
def test_where_a_rank_of_before_is_among_them_the_ring_comes_up_without(seed: int) -> None:
    """The strangers of that can't be told: a ring hangs for a while, as it did before."""
    result = strange(seed, ("before", "present", "present"))
    assert "stranger" not in dict(faults(result))


@pytest.mark.parametrize("seed", range(3))
def test_they_disturb_no_other_recovery(seed: int) -> None:
    passes(simulate(setup_of(seed, ("stranger", "node", "reducer", "daemon", "partition"))))
