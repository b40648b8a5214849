"""Shares follow speed, and stragglers are told of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .cluster import JobShape, Setup
from .run import simulate
from .test_growth import worlds
from .test_sim import job_events, passes

SHAPE = JobShape(steps=300, grains=8, every=50)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_node_gets_fewer_grains_by_one_short_pause(seed: int) -> None:
    result = passes(simulate(Setup(seed=seed, jobs=(SHAPE,), slowness=(5.0,))))
    (moved,) = job_events(result, "shares_moved")
    assert moved["grains"]["n0"] <= 1
    last = worlds(result)[-1]
    dealt = dict(zip(last.members, last.shares, strict=True))
    counts = {n: sum(end - start for start, end in share) for n, share in dealt.items()}
    assert counts == moved["grains"]
    assert last.rung == "retry" and set(last.sources) == {"keep"}
    assert not job_events(result, "recovery_finished"), "that is no fault"
    (slow,) = job_events(result, "fault_detected")
    assert (slow["fault"], slow["culprit"]) == ("slow", "n0")


@pytest.mark.parametrize("seed", range(3))
def test_where_the_wire_is_slow_a_rank_computes_more_if_that_sends_less(seed: int) -> None:
    shape = replace(SHAPE, steps=60, grains=64)
    result = passes(simulate(Setup(seed=seed, jobs=(shape,), wire_seconds=0.5)))
    (moved,) = job_events(result, "shares_moved")
    assert sorted(moved["grains"].values()) == [0, 32, 32]
    last = worlds(result)[-1]
    assert last.rung == "retry" and set(last.sources) == {"keep"}


@pytest.mark.parametrize("seed", range(3))
def test_with_drop_slow_the_others_go_on_without_the_slow_one(seed: int) -> None:
    """Even without a grain it would hold them up: its updates take as long as their steps."""
    shape = replace(SHAPE, drop_slow=True)
    result = passes(simulate(Setup(seed=seed, jobs=(shape,), slowness=(50.0,))))
    (slow,) = job_events(result, "fault_detected")
    assert (slow["fault"], slow["culprit"]) == ("slow", "n0")
    assert slow["seconds_to_detect"] > 0
    (dropped,) = job_events(result, "node_dropped")
    assert dropped["culprit"] == "n0"
    last = worlds(result)[-1]
    assert set(last.members) == {"n1", "n2"} and set(last.sources) == {"keep"}


def test_nodes_that_are_equally_fast_keep_their_shares() -> None:
    result = passes(simulate(Setup(seed=1, jobs=(SHAPE,))))
    assert not job_events(result, "shares_moved")
    assert len(worlds(result)) == 1
