"""Memory that is seen to run short before it runs out."""

from __future__ import annotations

import pytest

from elasticd.core.words import effects as e

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import simulate
from .scripts import at_step
from .test_sim import job_events, passes

MIB = 1 << 20


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_falling_headroom_ends_in_recomputation_without_a_fault(seed: int, nodes: int) -> None:
    def falls(cluster: Cluster, injector: Injector) -> None:
        host = cluster.living()[seed % nodes]
        for number, left in enumerate((90, 70, 50, 30)):
            event = e.MemoryPressure(f"{left} MiB are left", left * MIB)
            cluster.after(2.0 * number, lambda event=event: host.post(event))  # type: ignore[misc]

    setup = Setup(seed=seed, nodes=nodes, jobs=(JobShape(steps=200),))
    result = passes(simulate(setup, script=at_step(10, falls)))
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert [world.relief for world in worlds] == [0, 2]
    assert worlds[-1].rung == "relieve" and len(worlds[-1].members) == nodes
    events = [event for _, _, event in result.cluster.checkers.events]
    (relieved,) = [event.reason for event in events if event.kind == "memory_relieved"]
    assert "activations are computed again" in relieved and "MiB are left, less" in relieved
    assert len([event for event in events if event.kind == "memory_pressure"]) == 3
    assert job_events(result, "fault_detected") == job_events(result, "batch_shrunk") == []
