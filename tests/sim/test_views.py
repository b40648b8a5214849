"""Views under simulated faults: who leaves, who parks, what becomes of two lineages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core import effects as e
from elasticd.types import NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import LINK_KINDS, NODE_KINDS, Injector
from .run import Result, simulate
from .scripts import (
    at_step,
    crash_before_it_is_formed,
    cut_off,
    led,
    stop_the_only_member,
)
from .seeds import setup_of
from .test_sim import job_events, passes, recovery_seconds

VIEW_KINDS = (*NODE_KINDS, *LINK_KINDS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("leads", [True, False])
def test_a_daemon_that_is_stopped_costs_no_wait(leads: bool, seed: int) -> None:
    """It says that it goes, so that nobody waits for it to come back."""
    struck: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        leader = led(cluster)
        others = [host for host in cluster.living() if host is not leader]
        victim = leader if leads else others[0]
        struck.append(cluster.now)
        victim.post(e.Leave("its daemon is being stopped"))
        cluster.after(0.02, victim.crash)
        cluster.after(8.0, victim.start)

    # A trainer alone in its world has no ring that could break and be a second witness.
    shape = JobShape(steps=200, every=20, world_max=0)
    result = passes(simulate(Setup(seed=seed, nodes=3, jobs=(shape,)), script=at_step(15, strike)))
    assert recovery_seconds(result, struck[0]) < 0.6
    assert [fields["rung"] for fields in job_events(result, "recovery_finished")] == ["regroup"]


def test_a_node_that_left_and_stays_after_all_is_let_in() -> None:
    def strike(cluster: Cluster, injector: Injector) -> None:
        host = led(cluster)
        host.post(e.Leave("drained"))
        cluster.after(3.0, lambda: host.post(e.Stay()))

    shape = JobShape(steps=150, every=20)
    result = passes(simulate(Setup(seed=1, nodes=3, jobs=(shape,)), script=at_step(10, strike)))
    sizes = [len(world.members) for world in result.cluster.checkers.forms.values()]
    assert sizes == [3, 2, 3]
    assert [fields["lost_steps"] for fields in job_events(result, "recovery_finished")] == [0]


# --- partition = "strict" -----------------------------------------------------------------------


def strict(seed: int, nodes: int = 3, **shape: int) -> Setup:
    job = replace(JobShape(steps=150, every=20), **shape)  # type: ignore[arg-type]
    return Setup(seed=seed, nodes=nodes, jobs=(job,), partition="strict")


def parked(result: Result) -> list[str]:
    return [e.reason for _, _, e in result.cluster.checkers.events if e.kind == "job_parked"]


def lineages(result: Result) -> set[str]:
    return {world.lineage for world in result.cluster.checkers.forms.values()}


@pytest.mark.parametrize("close", [True, False])
def test_strict_the_smaller_side_parks_and_one_lineage_is_left(close: bool) -> None:
    def strike(cluster: Cluster, injector: Injector) -> None:
        cluster.after(6.0, cut_off(cluster, injector, NodeId("n2"), close))

    result = passes(simulate(strict(1), script=at_step(15, strike)))
    assert parked(result) == [
        'partition = "strict": 1 of the last view\'s 3 members are here, 2 are needed'
    ]
    assert len(lineages(result)) == 1
    assert [fields["lost_steps"] for fields in job_events(result, "recovery_finished")] == [0]


def test_strict_the_last_of_three_parks_until_another_is_back() -> None:
    def strike(cluster: Cluster, injector: Injector) -> None:
        leader = led(cluster)
        left = [host for host in cluster.living() if host is not leader]
        for victim in (leader, left[0]):
            victim.crash()
            cluster.after(9.0, victim.start)

    result = passes(simulate(strict(2), script=at_step(15, strike)))
    assert len(parked(result)) == 1
    assert [fields["lost_steps"] for fields in job_events(result, "recovery_finished")] == [0]


@pytest.mark.parametrize("seed", range(3))
def test_strict_a_world_that_is_cut_off_has_ended_before_another_begins(seed: int) -> None:
    setup = strict(seed, world_max=1, steps=2000, every=20)
    result = passes(simulate(setup, script=stop_the_only_member))
    assert len(result.cluster.checkers.forms) > 1


def test_strict_an_attempt_that_may_have_formed_is_not_passed_over() -> None:
    result = passes(simulate(strict(1, steps=600), script=crash_before_it_is_formed))
    assert any("undecided view" in reason for reason in parked(result)), parked(result)
    assert len(lineages(result)) == 1


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_strict_corpus(first: int) -> None:
    for seed in range(first, first + 20):
        setup = replace(setup_of(seed, VIEW_KINDS), partition="strict")
        passes(simulate(setup))
