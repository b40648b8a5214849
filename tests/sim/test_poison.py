"""Steps that kill whoever computes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .poison import Poison
from .run import Result, simulate
from .scripts import at_step, newest
from .test_sim import job_events, passes

JOB = JobId("job1-1-abcd")
STEP = 8
ALL = Poison(STEP, "kill", (0, 1, 2))
HOW = ("kill", "crash", "hang", "memory")
PASSES_SECONDS = 200.0
AWAY_SECONDS = 600.0
"""Far longer than steps have to hang until they are to blame."""
SHAPE = JobShape(user_code_seconds=20.0)


def run(poison: Poison, nodes: int = 3, seed: int = 1, shape: JobShape = SHAPE) -> Result:
    """Until the job has ended; what does not last passes after a while."""
    setup = Setup(seed=seed, nodes=nodes, jobs=(shape,), poison=poison, limit_seconds=1500.0)

    def calm(cluster: Cluster, injector: Injector) -> None:
        if not poison.lasts(cluster):
            seconds = AWAY_SECONDS if poison.how == "hang" and poison.short else PASSES_SECONDS
            cluster.after(seconds, cluster.poisons.pass_by)

    return passes(simulate(setup, script=calm))


def ending(result: Result) -> tuple[str, str]:
    record = result.cluster.record_of(JOB)
    assert record is not None
    return record.state, record.reason or ""


@pytest.mark.parametrize(
    ("nodes", "how", "whole"),
    [(3, how, False) for how in HOW] + [(3, "kill", True), (2, "kill", False), (4, "crash", True)],
)
def test_poison_everywhere_ends_the_job_with_step_and_evidence(
    nodes: int, how: str, whole: bool
) -> None:
    result = run(replace(ALL, how=how, whole=whole, nodes=tuple(range(nodes))), nodes)
    state, reason = ending(result)
    assert state == "failed" and f"step {STEP} ends every trainer that computes it" in reason
    assert result.seconds < (420.0 if how == "hang" else 90.0)
    deaths = result.faults["poison"]
    assert deaths >= 7
    if not whole:
        assert "; samples 0-" in reason and "0-15" not in reason, "those that were lived through"


def test_who_waits_for_one_that_hangs_is_not_blamed() -> None:
    """Not in the first step of fresh processes either, which wait for each other's probes."""
    result = run(Poison(1, "hang", (0, 1, 2)))
    assert ending(result)[0] == "failed"
    killed = [
        f"{line.split()[1]}/{line.split()[3].rstrip(':')}"
        for line in result.transcript
        if " kills " in line and " it hung: " in line
    ]
    assert killed and {*killed} <= result.cluster.poisons.hung


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("node", [0, 2])
def test_one_node_that_dies_of_a_step_ends_nothing(node: int, how: str) -> None:
    result = run(replace(ALL, how=how, nodes=(node,)))
    assert ending(result)[0] == "finished"
    assert result.seconds < 100.0, "the others have done the step"


@pytest.mark.parametrize("how", ["kill", "crash", "memory"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_short_memory_is_waited_for(nodes: int, how: str) -> None:
    result = run(replace(ALL, how=how, nodes=tuple(range(nodes)), short=True), nodes)
    assert ending(result)[0] == "finished" and result.seconds >= PASSES_SECONDS
    assert job_events(result, "job_parked")


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_file_server_that_is_away_is_waited_for(nodes: int) -> None:
    result = run(replace(ALL, how="hang", nodes=tuple(range(nodes)), short=True), nodes)
    assert ending(result)[0] == "finished" and result.seconds >= AWAY_SECONDS
    faults = [e for _, _, e in result.cluster.checkers.events if e.kind == "fault_detected"]
    assert any("it waited for a disk or a file server" in event.reason for event in faults)


def test_a_single_node_can_blame_nothing() -> None:
    result = run(replace(ALL, nodes=(0,)), nodes=1)
    assert ending(result)[0] == "finished" and result.seconds >= PASSES_SECONDS


def test_it_climbs_rung_by_rung() -> None:
    result = run(ALL, shape=replace(SHAPE, every=3))
    assert job_events(result, "memory_relieved")
    worlds = result.cluster.checkers.forms.values()
    assert any("may be why that kills" in world.reason for world in worlds)
    alone = [world for world in worlds if "alone computes it" in world.reason]
    owners = {w.members[[share != () for share in w.shares_now].index(True)] for w in alone}
    assert owners == {"n0", "n1", "n2"}


def test_eight_kills_at_one_step_of_several_kinds_are_accidents() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        at_step(STEP, lambda c, i: [i.inject(kind) for kind in ("trainer", "oom") * 4])(
            cluster, injector
        )

    passes(simulate(Setup(seed=1, jobs=(SHAPE,)), script=script))


@pytest.mark.parametrize("how", HOW)
def test_a_node_that_comes_back_lives_through_what_kills_on_the_other(how: str) -> None:
    """Only at the end of a step it could join, and that step never ends without it."""
    poison = replace(ALL, how=how, nodes=(0,))

    def script(cluster: Cluster, injector: Injector) -> None:
        other = cluster.hosts[NodeId("n1")]
        cluster.when(lambda: newest(cluster) >= STEP - 2, other.crash)
        cluster.when(lambda: cluster.faults["poison"] >= 6, other.start)

    setup = Setup(seed=1, nodes=2, jobs=(SHAPE,), poison=poison, limit_seconds=1500.0)
    result = passes(simulate(setup, script=script))
    assert ending(result)[0] == "finished"


@pytest.mark.parametrize("nodes", [2, 3])
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_step_that_takes_machines_down_ends_the_job_whoever_leads(nodes: int, seed: int) -> None:
    """Each try takes the memory of a machine with it, and often that of who leads."""
    poison = replace(ALL, how="node", nodes=tuple(range(nodes)))
    state, reason = ending(run(poison, nodes, seed))
    assert state == "failed" and f"step {STEP} ends every trainer that computes it" in reason
    assert "the loss of the node on n0, n1" in reason


def test_a_machine_that_goes_down_at_a_step_ends_nothing_if_others_live_through_it() -> None:
    result = run(replace(ALL, how="node", nodes=(1,)))
    assert ending(result)[0] == "finished" and result.seconds < 100.0


@pytest.mark.parametrize("nodes", [1, 3])
def test_where_all_machines_go_down_at_once_the_job_rests_before_each_further_try(
    nodes: int,
) -> None:
    """Nobody is left who knows how far it had come."""
    poison = replace(ALL, how="node", nodes=tuple(range(nodes)), whole=True)
    result = run(poison, nodes, shape=replace(SHAPE, every=3))
    assert ending(result)[0] == "finished" and result.seconds >= PASSES_SECONDS
    assert result.faults["poison"] <= 18 * nodes
    assert job_events(result, "job_parked")
