"""The control plane under simulated faults."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .ring import Reducer
from .run import Result, simulate
from .scripts import at_step, kill_who_has_answered, newest
from .seeds import setup_of

SEEDS = [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (3, 4, 5))]


def passes(result: Result) -> Result:
    replay = f"replay: python tests/sim/replay.py {result.setup.seed} --shrink"
    assert not result.problem, "\n".join([*result.transcript[-40:], result.problem, replay])
    return result


def job_events(result: Result, kind: str) -> list[dict[str, Any]]:
    return [e.fields for _, _, e in result.cluster.checkers.events if e.kind == kind]


def recovery_seconds(result: Result, after: float) -> float:
    """From ``after`` to the next newly committed step."""
    times = [t for c in result.cluster.checkers.commits.values() for t, _ in c.times]
    return min(time for time in times if time > after) - after


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
def test_a_job_without_faults_ends(nodes: int) -> None:
    result = passes(simulate(Setup(seed=nodes, nodes=nodes)))
    assert len(result.cluster.checkers.forms) == 1
    assert job_events(result, "fault_detected") == []
    steps = [fields["step"] for fields in job_events(result, "checkpoint_committed")]
    assert steps == [0, 5, 10, 15, 20]
    record = result.cluster.record_of(JobId("job1-1-abcd"))
    assert record is not None and record.state == "finished" and record.reason is None


def test_a_few_seeds() -> None:
    """More of them are in test_seeds.py."""
    for seed in range(6):
        passes(simulate(setup_of(seed)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "rung"), [("trainer", "regroup"), ("reducer", "retry")])
def test_a_killed_child_costs_no_wait(kind: str, rung: str, seed: int) -> None:
    """Only messages, the reducers' bring-up and the step itself are in the path, no timer."""
    struck: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        struck.append(cluster.now)
        injector.inject(kind)

    shape = JobShape(steps=60, every=20)
    setup = Setup(seed=seed, nodes=3, jobs=(shape,), reducer_start_seconds=(0.05, 0.1))
    result = passes(simulate(setup, script=at_step(15, strike)))
    finished = job_events(result, "recovery_finished")
    assert [fields["rung"] for fields in finished] == [rung]
    assert finished[0]["lost_steps"] == 0
    assert recovery_seconds(result, struck[0]) < 0.45


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slow", [0.0, 0.05], ids=["told", "found dead"])
def test_a_killed_reducer_is_told_from_a_link_however_late_its_daemon_knows(
    slow: float, seed: int
) -> None:
    """A dying process closes its sockets first: the others may have given the ring up by then."""
    struck: list[NodeId] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        victim = cluster.living()[seed % 3]
        struck.append(victim.name)
        for child in victim.children.values():
            if isinstance(child, Reducer) and child.formed:
                child.kill()

    setup = Setup(
        seed=seed, reap_seconds=(0.002 + slow, 0.005 + slow), notice_seconds=(slow, 0.005 + slow)
    )
    result = passes(simulate(setup, script=at_step(10, strike)))
    told = [(f["fault"], f["culprit"]) for f in job_events(result, "fault_detected")]
    assert told == [("reducer_lost", struck[0])]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("leads", [True, False])
def test_a_killed_node_is_known_by_two_witnesses(leads: bool, seed: int) -> None:
    struck: list[float] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        struck.append(cluster.now)
        node = cluster.hosts[sorted(cluster.hosts)[0]].node
        assert node is not None and node.views.view is not None
        victims = [n for n in cluster.hosts if (n == node.views.view.leader) == leads]
        cluster.hosts[victims[0]].crash()
        cluster.after(8.0, cluster.hosts[victims[0]].start)

    setup = Setup(seed=seed, nodes=3, jobs=(JobShape(steps=200, every=20),))
    result = passes(simulate(setup, script=at_step(15, strike)))
    assert recovery_seconds(result, struck[0]) < 0.6
    finished = job_events(result, "recovery_finished")
    assert [fields["rung"] for fields in finished] == ["regroup"]
    assert finished[0]["lost_steps"] == 0
    assert finished[0]["seconds"] < 0.6
    last = max(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert len(last.members) == 3, "the node that came back is let in"


def test_survivors_keep_their_state_and_their_grains() -> None:
    setup = Setup(seed=3, nodes=3, jobs=(JobShape(steps=40),))
    strike = at_step(10, lambda cluster, injector: injector.inject("trainer"))
    result = passes(simulate(setup, script=strike))
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert worlds[1].sources == ("keep", "keep")
    assert worlds[2].sources[:2] == ("keep", "keep")
    assert worlds[2].sources[2].startswith("updates:")
    for world in worlds[1:]:
        kept = [
            set(worlds[0].shares[worlds[0].members.index(node)])
            for node in world.members
            if node in worlds[0].members
        ]
        if world is worlds[1]:
            grains = [{g for a, b in share for g in range(a, b)} for share in world.shares_now]
            begun = [{g for a, b in share for g in range(a, b)} for share in kept]
            assert all(old <= new for old, new in zip(begun, grains, strict=True))


def test_all_trainers_killed_at_once_restores_the_newest_checkpoint() -> None:
    setup = Setup(seed=5, nodes=3, jobs=(JobShape(steps=40, every=5),))
    strike = at_step(22, lambda cluster, injector: injector.inject("trainers"))
    result = passes(simulate(setup, script=strike))
    (finished,) = job_events(result, "recovery_finished")
    assert finished["rung"] == "restore"
    assert finished["resume_step"] in (15, 20)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.9, 2.1, 2.5, 3.0])
def test_a_cancel_at_any_phase_ends_everything(seconds: float) -> None:
    from elasticd.core.words import effects as e

    def script(cluster: Cluster, injector: Injector) -> None:
        def cancel() -> None:
            (job,) = cluster.specs
            cluster.hosts[sorted(cluster.hosts)[-1]].post(e.Cancel(99, job))

        cluster.after(seconds, cancel)

    result = passes(simulate(Setup(seed=8, nodes=3, jobs=(JobShape(steps=200),)), script=script))
    (job,) = result.cluster.specs
    record = result.cluster.record_of(job)
    assert record is not None and record.state == "cancelled"
    assert any(99 in host.replies for host in result.cluster.hosts.values())


@pytest.mark.parametrize(
    ("nodes", "policy", "rung"),
    [
        (2, "restore", "restore"),
        (3, "restore", "restore"),
        (2, "continue", "restore"),
        (3, "continue", "regroup"),
    ],
)
def test_a_state_that_differs_is_found_by_its_checkpoint(
    nodes: int, policy: str, rung: str
) -> None:
    """Also where no parameters are compared between checkpoints. Two have no majority."""
    shape = JobShape(steps=40, every=5, verify_every=0, on_divergence=policy)
    setup = Setup(seed=1, nodes=nodes, jobs=(shape,))
    strike = at_step(8, lambda cluster, injector: injector.inject("diverge"))
    result = passes(simulate(setup, script=strike))
    (finished,) = job_events(result, "recovery_finished")
    assert finished["rung"] == rung
    lost = [e.reason for _, _, e in result.cluster.checkers.events if e.kind == "exact_lost"]
    assert [why.endswith("since step 5") for why in lost] == [True] * (rung == "regroup")


@pytest.mark.parametrize("policy", ["restore", "continue"])
@pytest.mark.parametrize("nodes", [2, 3])
def test_what_a_script_keeps_by_rank_is_named_at_the_first_checkpoint(
    nodes: int, policy: str
) -> None:
    shape = JobShape(by_rank=True, verify_every=0, on_divergence=policy)
    result = passes(simulate(Setup(seed=1, nodes=nodes, jobs=(shape,))))
    (told,) = job_events(result, "state_differs")
    assert (told["step"], told["name"]) == (5, "run.track('seen', …)")
    assert len(job_events(result, "job_failed")) == 1
    assert job_events(result, "fault_detected") == []


def test_alone_nothing_differs() -> None:
    passes(simulate(Setup(seed=1, nodes=1, jobs=(JobShape(by_rank=True),))))


def test_jobs_run_one_after_the_other() -> None:
    setup = Setup(seed=2, nodes=2, jobs=(JobShape(steps=6), JobShape(steps=6), JobShape(steps=6)))
    result = passes(simulate(setup))
    worlds = sorted(result.cluster.checkers.forms.values(), key=lambda world: world.generation)
    assert sorted(world.job for world in worlds) == sorted(result.cluster.specs)
    ended = [e.job for _, _, e in result.cluster.checkers.events if e.kind == "job_finished"]
    assert ended == [world.job for world in worlds]


def test_a_world_waits_for_its_least_members() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        def strike() -> None:
            cluster.hosts[sorted(cluster.hosts)[1]].crash()
            cluster.after(30.0, cluster.hosts[sorted(cluster.hosts)[1]].start)

        cluster.when(lambda: newest(cluster) >= 5, strike)

    setup = Setup(seed=4, nodes=2, jobs=(JobShape(steps=30, world_min=2),))
    result = passes(simulate(setup, script=script))
    assert result.seconds > 30.0
    assert {len(world.members) for world in result.cluster.checkers.forms.values()} == {2}
    parked = [e.reason for _, _, e in result.cluster.checkers.events if e.kind == "job_parked"]
    assert parked == ["1 of at least 2 members are ready"]


def test_two_that_lose_each_other_go_on_with_a_third() -> None:
    """Neither may train alone, and no ring holds both: whoever reaches one of them steps in."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        world = max(cluster.checkers.forms.values(), key=lambda world: world.generation)
        a, b = world.members
        cluster.network.cut(((a, b), (b, a)), close=True)

    setup = Setup(seed=4, nodes=3, jobs=(JobShape(steps=30, world_min=2, world_max=2),))
    result = passes(simulate(setup, script=at_step(5, strike)))
    (avoided,) = job_events(result, "link_avoided")
    assert len(avoided["without"]) == 1


@pytest.mark.process
@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_is_one_history_whatever_the_hash_seed(seed: int) -> None:
    script = Path(__file__).with_name("replay.py")
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, str(script), str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        digests.add(done.stdout.split("digest ")[1].split()[0])
    assert len(digests) == 1


def test_a_trainer_may_die_after_it_has_answered() -> None:
    setup = Setup(seed=1, nodes=2, jobs=(JobShape(steps=40),), message_seconds=(0.01, 0.02))
    passes(simulate(setup, script=kill_who_has_answered))
