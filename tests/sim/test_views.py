"""Views under simulated faults: who leaves, who parks, what becomes of two lineages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.words import effects as e
from elasticd.types import NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import Result, simulate
from .scripts import (
    at_step,
    crash_before_it_is_formed,
    cut_off,
    leave,
    led,
    lose_two_journals,
    stop_the_only_member,
)
from .seeds import setup_of
from .strikes import LINK_KINDS, NODE_KINDS
from .test_sim import job_events, passes, recovery_seconds

VIEW_KINDS = (*NODE_KINDS, *LINK_KINDS)


@pytest.mark.parametrize("seed", range(2))
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


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_joins_while_a_world_forms_does_not_stop_it(seed: int) -> None:
    def strike(cluster: Cluster, injector: Injector) -> None:
        leader = led(cluster)
        other = next(host for host in cluster.living() if host is not leader)

        def forming() -> bool:
            drivers = leader.node.drivers.by_job.values() if leader.node is not None else ()
            return any(driver.forming for driver in drivers)

        def again() -> None:
            injector.inject("reducer")
            cluster.when(forming, other.start)

        other.crash()
        cluster.after(3.0, again)

    shape = JobShape(steps=200, every=20)
    slow = (0.02, 0.04)
    setup = Setup(seed=seed, nodes=4, jobs=(shape,), message_seconds=slow)
    result = passes(simulate(setup, script=at_step(15, strike)))
    rungs = [fields["rung"] for fields in job_events(result, "recovery_finished")]
    assert rungs == ["regroup", "retry"]


# --- lineages that meet ---------------------------------------------------------------------------


def told(result: Result, kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [(e.reason, e.fields) for _, _, e in result.cluster.checkers.events if e.kind == kind]


@pytest.mark.parametrize("seed", range(2))
def test_two_halves_go_on_meet_and_one_lineage_is_left(seed: int) -> None:
    """All trainers die after the meeting: what is restored then is of the lineage that went on."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        def met() -> bool:
            return any(e.kind == "lineages_met" for _, _, e in cluster.checkers.events)

        cluster.after(6.0, cut_off(cluster, injector, NodeId("n2"), True))

        def kill() -> None:
            injector.inject("trainers")

        cluster.when(met, lambda: cluster.after(1.0, kill))

    shape = JobShape(steps=300, every=7, replicas=1)
    result = passes(simulate(Setup(seed=seed, nodes=3, jobs=(shape,)), script=at_step(15, strike)))
    opened = [fields for _, fields in told(result, "lineage_opened")]
    assert opened[0]["parent"] is None
    forked = opened[1]
    assert forked["parent"] == opened[0]["lineage"]
    ((reason, met),) = told(result, "lineages_met")
    assert {met["kept"], met["left"]} == {opened[0]["lineage"], forked["lineage"]}
    assert met["kept_step"] >= met["left_step"] > met["parent_step"]
    assert reason.startswith(f"lineage {met['kept']} goes on from step {met['kept_step']}; ")
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    restored = [world.manifest for world in worlds if world.manifest is not None]
    assert restored, "the trainers were killed"
    for manifest in restored:
        beyond = manifest.lineage == met["left"] and manifest.step > met["parent_step"]
        assert not beyond, "a lineage that was left is never promoted"
    records = [host.node.records for host in result.cluster.living() if host.node is not None]
    assert all(dict(r.left) for table in records for r in table.values()), "every node knows"


@pytest.mark.parametrize("seed", range(2))
def test_of_two_halves_without_trainers_the_further_one_goes_on(seed: int) -> None:
    """The smaller half forms more worlds, and gets less far; then power fails everywhere."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        smaller = cluster.hosts[NodeId("n2")]
        heal = cut_off(cluster, injector, smaller.name, True)

        def kill() -> None:
            for child in list(smaller.children.values()):
                child.kill()

        def power() -> None:
            for host in cluster.hosts.values():
                host.crash()
                cluster.after(1.0, host.start)
            heal()

        for seconds in (5.0, 8.0, 11.0):
            cluster.after(seconds, kill)
        cluster.after(14.0, power)

    shape = JobShape(steps=300, every=7, replicas=1)
    result = passes(simulate(Setup(seed=seed, nodes=3, jobs=(shape,)), script=at_step(15, strike)))
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    (met,) = (fields for _, fields in told(result, "lineages_met"))
    (last,) = (w.manifest for w in worlds if w.manifest and len(w.members) > 1)
    assert (last.lineage, last.step) == (met["kept"], met["kept_step"])
    assert met["kept_step"] >= met["left_step"] > met["parent_step"]
    left = max((w for w in worlds if w.lineage == met["left"]), key=lambda w: w.generation)
    kept = max((w for w in worlds if w.lineage == met["kept"]), key=lambda w: w.generation)
    assert left.generation > kept.generation, "the newest world is none of the furthest history"


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


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_strict_of_two_one_that_leaves_hands_its_vote_over(seed: int, leads: bool) -> None:
    """The other trains on; who left can't go on alone, though it was the one that breaks ties."""
    struck: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        leader = led(cluster)
        (other,) = (host for host in cluster.living() if host is not leader)
        victim, stays = (leader, other) if leads else (other, leader)
        struck.append(cluster.now)
        leave(cluster, victim)
        cluster.after(3.0, stays.crash)
        cluster.after(4.0, victim.start)
        cluster.after(20.0, stays.start)

    result = passes(simulate(strict(seed, nodes=2, steps=400), script=at_step(15, strike)))
    assert recovery_seconds(result, struck[0]) < 0.6
    (reason,) = parked(result)
    assert "without n0, which breaks the tie" in reason or "0 of undecided view" in reason


def test_strict_a_world_that_is_cut_off_has_ended_before_another_begins() -> None:
    setup = strict(0, world_max=1, steps=2000, every=20)
    result = passes(simulate(setup, script=stop_the_only_member))
    assert len(result.cluster.checkers.forms) > 1


def test_strict_an_attempt_that_may_have_formed_is_not_passed_over() -> None:
    result = passes(simulate(strict(1, steps=600), script=crash_before_it_is_formed))
    assert any("undecided view" in reason for reason in parked(result)), parked(result)
    assert len(lineages(result)) == 1


def test_strict_who_lost_their_journals_make_no_view_of_their_own() -> None:
    reasons: list[str] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        lose_two_journals(cluster, injector)
        host = cluster.hosts[NodeId("n1")]
        cluster.when(
            lambda: host.node is not None and "forgot" in host.node.views.parked,
            lambda: reasons.append(host.node.views.parked if host.node is not None else ""),
        )

    result = passes(simulate(strict(1, steps=600), script=script))
    assert reasons == [
        'partition = "strict": 2 of 3 configured nodes are here, of which n1, n2 forgot, all are'
        " needed for a first view"
    ]
    assert len(lineages(result)) == 1


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_strict_corpus(first: int) -> None:
    for seed in range(first, first + 10):
        setup = replace(setup_of(seed, VIEW_KINDS), partition="strict")
        passes(simulate(setup))
