"""Scripts that are killed behind their loop, when all steps are done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticd.core.taking_part.elastic import Elastic
from elasticd.types import JobId

from .cluster import Cluster, Setup
from .faults import Injector
from .run import Result, simulate
from .scripts import Script
from .test_sim import job_events, passes
from .trainer import Trainer

JOB = JobId("job1-1-abcd")
SLOWLY = (1.0, 4.0)
"""Seconds for what stands behind the loop."""


def behind(cluster: Cluster) -> list[Trainer]:
    """Trainers that were told to leave their loop, and run what stands behind it."""
    found = []
    for host in cluster.living():
        assert host.node is not None
        for each in host.node.members.all():
            assert isinstance(each.part, Elastic)
            ours = each.part.crew.trainer
            child = host.children.get(ours.child) if ours is not None else None
            if ours is not None and ours.phase == "released" and isinstance(child, Trainer):
                found.append(child)
    return found


def kill(chosen: Callable[[Trainer], bool], times: int) -> Script:
    """Kill such trainers behind their loop, so often."""

    def script(cluster: Cluster, injector: Injector) -> None:
        left = [times]

        def victims() -> list[Trainer]:
            return [each for each in behind(cluster) if each.alive and chosen(each)]

        def strike() -> None:
            for victim in victims():
                victim.kill()
            left[0] -= 1
            if left[0]:
                cluster.when(lambda: bool(victims()), strike)

        cluster.when(lambda: bool(victims()), strike)

    return script


def run(seed: int, script: Script) -> Result:
    setup = Setup(seed=seed, end_seconds=SLOWLY, fault_kinds=(), limit_seconds=600.0)
    return simulate(setup, script=script)


def reason(result: Result) -> tuple[str, str]:
    record = result.cluster.record_of(JOB)
    assert record is not None
    return record.state, record.reason or ""


@pytest.mark.parametrize("name", ["n0", "n2"])
@pytest.mark.parametrize("seed", range(3))
def test_what_stands_behind_the_loop_is_run_again_where_it_was_killed(seed: int, name: str) -> None:
    result = passes(run(seed, kill(lambda trainer: trainer.host.name == name, 1)))
    assert job_events(result, "world_formed")[-1]["members"] == [name]
    (found,) = job_events(result, "fault_detected")
    assert found["culprit"] == name and "killed behind its loop" in found["evidence"][0]


@pytest.mark.parametrize("seed", range(3))
def test_it_is_run_again_by_all_if_it_was_killed_everywhere(seed: int) -> None:
    result = passes(run(seed, kill(lambda trainer: True, 1)))
    assert job_events(result, "job_finished")


@pytest.mark.parametrize("seed", range(2))
def test_what_dies_behind_its_loop_each_time_fails_the_job_and_says_so(seed: int) -> None:
    result = run(seed, kill(lambda trainer: trainer.host.name == "n0", 50))
    state, why = reason(result)
    assert state == "failed" and "the script dies behind its last step, 5 times" in why


@pytest.mark.parametrize("seed", range(2))
def test_and_no_step_is_blamed_where_it_dies_on_all_nodes(seed: int) -> None:
    result = run(seed, kill(lambda trainer: True, 50))
    state, why = reason(result)
    assert state == "failed" and "the script dies behind its last step" in why
    assert "ends every trainer" not in why
