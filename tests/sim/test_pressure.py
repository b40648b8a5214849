"""Memory that is seen to run short before it runs out."""

from __future__ import annotations

import pytest

from elasticd.core.words import effects as e
from elasticd.types import JobId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import simulate
from .scripts import at_step
from .test_sim import job_events, passes

MIB = 1 << 20


def falling_memory(cluster: Cluster, number: int) -> None:
    """One node's headroom falls, until all that it can give up for it is given."""
    host = cluster.living()[number]
    for number, left in enumerate((90, 70, 50, 30)):
        event = e.MemoryPressure(f"{left} MiB are left", left * MIB)
        cluster.after(2.0 * number, lambda event=event: host.post(event))  # type: ignore[misc]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_falling_headroom_ends_in_recomputation_without_a_fault(seed: int, nodes: int) -> None:
    setup = Setup(seed=seed, nodes=nodes, jobs=(JobShape(steps=200),))
    falls = at_step(10, lambda cluster, injector: falling_memory(cluster, seed % nodes))
    result = passes(simulate(setup, script=falls))
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert [world.relief for world in worlds] == [0, 2]
    assert worlds[-1].rung == "relieve" and len(worlds[-1].members) == nodes
    events = [event for _, _, event in result.cluster.checkers.events]
    (relieved,) = [event.reason for event in events if event.kind == "memory_relieved"]
    assert "activations are computed again" in relieved and "MiB are left, less" in relieved
    assert len([event for event in events if event.kind == "memory_pressure"]) == 3
    assert job_events(result, "fault_detected") == job_events(result, "batch_shrunk") == []


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("level", [2, 3])
def test_an_operator_has_given_back_what_the_job_gave_up(nodes: int, level: int) -> None:
    job = JobId("job1-1-abcd")

    def relieved(cluster: Cluster) -> int:
        record = cluster.record_of(job)
        return record.relief if record is not None else 0

    def story(cluster: Cluster, injector: Injector) -> None:
        def strike() -> None:
            if relieved(cluster) < level:
                injector.inject("oom")
                cluster.after(1.0, strike)
            else:
                injector.operator.retry(job, memory=True)

        strike()

    setup = Setup(seed=level, nodes=nodes, jobs=(JobShape(steps=150),))
    result = passes(simulate(setup, script=at_step(10, story)))
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert max(world.relief for world in worlds) >= level
    assert (worlds[-1].relief, worlds[-1].relief_turn) == (0, 1)
    events = [event for _, _, event in result.cluster.checkers.events]
    assert len([event for event in events if event.kind == "memory_given_back"]) == 1
