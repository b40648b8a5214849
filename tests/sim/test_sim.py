"""The control plane under simulated faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.core import leader, member
from elasticd.core.checkpointing import Checkpoints
from elasticd.core.messages import ShardsWritten
from elasticd.core.node import Node
from elasticd.recovery import regroup, restore
from elasticd.types import NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import Result, simulate
from .seeds import setup_of
from .trainer import Trainer

CORPUS = 200
_GROUP = 20
Script = Callable[[Cluster, Injector], None]


def when(cluster: Cluster, ready: Callable[[], bool], action: Callable[[], object]) -> None:
    """Do ``action`` as soon as ``ready()``, looked at every millisecond of simulated time."""

    def look() -> None:
        if ready():
            action()
        else:
            cluster.after(0.001, look)

    cluster.after(0.0, look)


def newest(cluster: Cluster) -> int:
    return max((step for c in cluster.checkers.commits.values() for _, step in c.times), default=-1)


def at_step(step: int, action: Callable[[Cluster, Injector], object]) -> Script:
    """A script that does ``action`` once, when ``step`` is committed."""

    def script(cluster: Cluster, injector: Injector) -> None:
        when(cluster, lambda: newest(cluster) >= step, lambda: action(cluster, injector))

    return script


def passes(result: Result) -> Result:
    assert not result.problem, "\n".join([*result.transcript[-40:], result.problem])
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


@pytest.mark.parametrize("first", range(0, CORPUS, _GROUP))
def test_corpus(first: int) -> None:
    for seed in range(first, first + _GROUP):
        passes(simulate(setup_of(seed)))


@pytest.mark.parametrize("seed", range(6))
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


@pytest.mark.parametrize("seed", range(6))
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
    from elasticd.core import effects as e

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

        when(cluster, lambda: newest(cluster) >= 5, strike)

    setup = Setup(seed=4, nodes=2, jobs=(JobShape(steps=30, world_min=2),))
    result = passes(simulate(setup, script=script))
    assert result.seconds > 30.0
    assert {len(world.members) for world in result.cluster.checkers.forms.values()} == {2}


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


# --- bugs that the checkers must find -------------------------------------------------------------


def problems(kinds: tuple[str, ...], seeds: range) -> str:
    """What is wrong with the first of ``seeds`` with which anything is."""
    found = (simulate(setup_of(seed, kinds)).problem for seed in seeds)
    return next(filter(None, found), "")


def test_finds_a_grain_that_two_ranks_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlapping(grains: int, kept: Any, members: Any) -> regroup.Shares:
        return tuple(((0, grains),) for _ in members)

    monkeypatch.setattr(regroup, "reshare", overlapping)
    monkeypatch.setattr(regroup, "check_shares", lambda grains, dealt: None)
    monkeypatch.setattr(Node, "check", lambda node: None)
    assert "uses grains" in problems((), range(5)) or "uses grains" in str(
        simulate(Setup(seed=1)).problem
    )


def test_finds_a_manifest_that_is_announced_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Checkpoints, "_wanted", lambda self, entry: 1)
    assert "is announced" in simulate(Setup(seed=1)).problem


def test_finds_a_resume_from_an_older_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def oldest(holdings: Any) -> restore.Held | None:
        held = [h for h in holdings.values() if h.point is not None]
        return min(held, key=lambda h: h.point.step, default=None)

    monkeypatch.setattr(restore, "best_held", oldest)
    problem = problems(("reducer", "stop_node"), range(100))
    assert "although" in problem


def test_finds_a_minority_that_keeps_the_lineage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "keeps_lineage", lambda last, present: True)
    problem = problems(("partition",), range(40))
    assert "committed twice, differently" in problem or "is committed" in problem


def test_finds_a_fresh_trainer_in_place_of_one_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_form(self: member.Member, form: Any) -> None:
        self.answerer = self.trainer.child if self.trainer is not None else None
        real(self, form)

    real = member.Member.on_form
    monkeypatch.setattr(member.Member, "on_form", on_form)
    setup = Setup(seed=1, nodes=2, jobs=(JobShape(steps=40),), message_seconds=(0.01, 0.02))
    problem = simulate(setup, script=kill_who_has_answered).problem
    assert "is to keep" in problem or "before Run" in problem


def test_a_trainer_may_die_after_it_has_answered() -> None:
    setup = Setup(seed=1, nodes=2, jobs=(JobShape(steps=40),), message_seconds=(0.01, 0.02))
    passes(simulate(setup, script=kill_who_has_answered))


def kill_who_has_answered(cluster: Cluster, injector: Injector) -> None:
    """Break the ring, and kill a trainer between what it says that it holds and the next world."""
    answered: list[Trainer] = []

    def look() -> bool:
        for host in cluster.living():
            assert host.node is not None
            if host.node.views.leading:
                continue  # It would know before it forms the world.
            for each in host.node.members.values():
                child = host.children.get(each.answerer) if each.answerer is not None else None
                if isinstance(child, Trainer) and child.point is not None:
                    answered.append(child)
        return bool(answered)

    def strike() -> None:
        injector.inject("reducer")
        when(cluster, look, lambda: answered[0].kill())

    when(cluster, lambda: newest(cluster) >= 10, strike)


def test_finds_work_that_is_lost_with_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Checkpoints, node: NodeId, written: ShardsWritten) -> None:
        if written.generation.leader == self.ctx.me:
            real(self, node, written)

    real = Checkpoints.on_shards
    monkeypatch.setattr(Checkpoints, "learn", lambda self, reports: None)
    monkeypatch.setattr(Checkpoints, "on_shards", forgetful)
    assert "do not end" in problems(("crash",), range(60))


def test_finds_a_plan_that_is_made_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader.Driver, "_start_point", lambda self: "not yet")
    monkeypatch.setattr(Node, "next_deadline", lambda self: self.ctx.now)
    assert "within a second" in simulate(Setup(seed=1)).problem
