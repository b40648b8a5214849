"""Machines whose chips round otherwise train together, and nobody is blamed for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .chips import Chips
from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import simulate
from .scripts import at_step
from .test_sim import job_events, passes

SHAPE = JobShape(steps=60, every=10, verify_every=5)


def setup_of(seed: int, *chips: int, show: bool, **shape: Any) -> Setup:
    job = replace(SHAPE, **shape)
    return Setup(seed=seed, nodes=len(chips), jobs=(job,), chips=Chips(chips, show))


@pytest.mark.parametrize("show", [True, False])
@pytest.mark.parametrize("chips", [(0, 1), (0, 0, 1), (0, 1, 1, 0)])
def test_all_take_ones_state_and_store_it(chips: tuple[int, ...], show: bool) -> None:
    result = passes(simulate(setup_of(len(chips), *chips, show=show)))
    assert not job_events(result, "fault_detected") and not job_events(result, "node_quarantined")
    assert len(job_events(result, "exact_lost")) == 1
    stored = [event["step"] for event in job_events(result, "checkpoint_committed")]
    assert len([step for step in stored if 0 < step < 60]) > 2, stored
    assert not job_events(result, "recovery_started")


@pytest.mark.parametrize("shape", [{"verify_every": 0}, {"every": 1000}])
def test_either_comparison_will_do(shape: dict[str, int]) -> None:
    result = passes(simulate(setup_of(1, 0, 1, show=False, **shape)))
    assert not job_events(result, "fault_detected")


@pytest.mark.parametrize("show", [True, False])
def test_one_that_joins_later_is_let_in(show: bool) -> None:
    """It shows other bits in its first step, and isn't called odd for that."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        cluster.hosts["n2"].crash()  # type: ignore[index]
        cluster.after(3.0, cluster.hosts["n2"].start)  # type: ignore[index]

    setup = setup_of(3, 0, 0, 1, show=show, steps=400)
    result = passes(simulate(setup, script=at_step(10, strike)))
    assert not job_events(result, "node_unfit")
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert len(worlds[-1].members) == 3
