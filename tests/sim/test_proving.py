"""Scripts that keep state outside of their run: who joins is left out, and the job goes on."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.recovery import fitness
from elasticd.recovery.exactness import FORGOTTEN
from elasticd.types import NodeId

from .byrank import THING
from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .planted import BUGS, hunt
from .run import simulate
from .scripts import at_step, newest
from .test_sim import job_events, passes
from .test_unfit import JOB, unfit
from .trainer import Trainer


def setup(kind: str, seed: int, **changes: Any) -> Setup:
    shape = JobShape(steps=60, outside=kind)
    given: dict[str, Any] = {
        "nodes": 3,
        "jobs": (shape,),
        "fault_seconds": 6.0,
        "fault_kinds": ("trainer", "reducer"),
        **changes,
    }
    return Setup(seed=seed, **given)


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_who_computes_something_else_is_left_out(kind: str) -> None:
    unfit = 0
    for seed in range(8):
        result = simulate(setup(kind, seed))
        assert not result.problem, (seed, result.problem)
        unfit += sum("event node_unfit: the script keeps" in line for line in result.transcript)
    assert unfit


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_whatever_breaks(kind: str) -> None:
    kinds = ("trainer", "trainers", "daemon", "node", "oom", "hang", "silence", "power_cut")
    for seed in range(12):
        result = simulate(setup(kind, seed, fault_kinds=kinds, nodes=4))
        assert not result.problem, (seed, result.problem)


def test_who_was_left_out_is_given_a_state_when_it_is_tried_again() -> None:
    """Its daemon comes back as another release. What it holds has the right stamp, and is wrong."""
    kinds = (
        "trainer", "trainers", "daemon", "node", "oom", "hang", "silence", "power_cut", "one_way",
        "reducer",
    )  # fmt: skip
    releases = ("before", "present", "next", "present")
    result = simulate(setup("grain", 122, nodes=4, releases=releases, fault_kinds=kinds))
    assert not result.problem
    assert any("event node_tried_again: n2" in line for line in result.transcript)


def test_nobody_is_left_out_whose_state_is_where_it_belongs() -> None:
    for seed in range(12):
        result = simulate(setup("", seed, fault_kinds=("trainer", "daemon", "node", "stop_node")))
        assert not result.problem, (seed, result.problem)
        assert not any("node_unfit" in line for line in result.transcript), seed


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_a_job_that_needs_who_computes_otherwise_fails_soon(kind: str) -> None:
    """Nodes don't take turns, each of which lets a step be committed."""
    shape = JobShape(steps=400, outside=kind, world_min=2)
    failed = 0
    for seed in range(6):
        result = simulate(setup(kind, seed, jobs=(shape,), fault_seconds=20.0))
        assert not result.problem, (seed, result.problem)
        assert len(unfit(result)) <= 4, seed
        failed += bool(job_events(result, "job_failed"))
    assert failed


@pytest.mark.parametrize("whose", ["n0", "n1"])
def test_one_wrong_bit_ends_no_job_that_needs_all_its_nodes(whose: str) -> None:
    """While one joins, the state of one of the two is spoilt."""
    shape, tried = JobShape(steps=40, world_min=2), 0
    for seed in range(4):

        def script(cluster: Cluster, injector: Injector) -> None:
            def serving(name: str) -> list[Trainer]:
                children = cluster.hosts[NodeId(name)].children.values()
                return [c for c in children if isinstance(c, Trainer) and c.point]

            def joins() -> bool:
                worlds = cluster.checkers.forms.values()
                return bool(serving(whose)) and any(world.unproven for world in worlds)

            def spoil() -> None:
                (victim,) = serving(whose)
                victim.spoilt, victim.taint = True, frozenset((cluster.events,))
                cluster.faults["diverge"] += 1

            cluster.when(lambda: newest(cluster) >= 8, lambda: serving("n1")[0].kill())
            cluster.when(lambda: newest(cluster) > 8 and joins(), spoil)

        result = passes(simulate(Setup(seed=seed, nodes=2, jobs=(shape,)), script=script))
        tried += len(job_events(result, "node_tried_again"))
        assert job_events(result, "job_finished"), seed
    assert tried


def kill_trainer(cluster: Cluster, name: str) -> None:
    children = [*cluster.hosts[NodeId(name)].children.values()]
    for each in (c for c in children if isinstance(c, Trainer) and c.point):
        each.kill()


def knows_it_is_out(cluster: Cluster, name: str) -> bool:
    host = cluster.hosts[NodeId(name)]
    record = host.node.records.get(JOB) if host.node is not None and host.done else None
    return record is not None and name in fitness.left_out(record.unfit)


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_who_is_left_out_goes_on_alone_where_all_others_are_lost(kind: str) -> None:
    """Nobody is there any more from whom it could differ: it begins at the newest checkpoint."""

    def script(cluster: Cluster, injector: Injector) -> None:
        def lose() -> None:
            for name in ("n0", "n2"):
                cluster.hosts[NodeId(name)].crash()

        cluster.when(lambda: newest(cluster) >= 8, lambda: kill_trainer(cluster, "n1"))

        def is_over() -> bool:
            record = cluster.record_of(JOB)
            return record is not None and record.ended

        def bring_back() -> None:
            for name in ("n0", "n2"):
                cluster.hosts[NodeId(name)].start()

        cluster.when(lambda: knows_it_is_out(cluster, "n1"), lose)
        cluster.when(is_over, bring_back)

    shape = JobShape(steps=60, outside=kind, replicas=3)
    result = passes(simulate(Setup(seed=1, jobs=(shape,)), script=script))
    assert unfit(result) == ["n1"] and len(job_events(result, "node_tried_again")) == 1
    (*_, last) = job_events(result, "world_formed")
    assert last["members"] == ["n1"] and job_events(result, "job_finished")


@pytest.mark.parametrize("kind", ["grain", "body"])
def test_once_that_is_known_no_job_that_goes_back_is_called_exact(kind: str) -> None:
    """What its script keeps outside of its run ends with the last process that has it."""

    def script(cluster: Cluster, injector: Injector) -> None:
        def lose() -> None:
            for name in ("n0", "n2"):
                kill_trainer(cluster, name)

        cluster.when(lambda: newest(cluster) >= 8, lambda: kill_trainer(cluster, "n1"))
        cluster.when(lambda: knows_it_is_out(cluster, "n1"), lose)

    shape = JobShape(steps=60, outside=kind)
    result = passes(simulate(Setup(seed=1, jobs=(shape,)), script=script))
    assert unfit(result)[0] == "n1" and job_events(result, "job_finished")
    events = result.cluster.checkers.events
    (why,) = (emit.reason for _, _, emit in events if emit.kind == "exact_lost")
    assert why.startswith(FORGOTTEN) and "n1" in why


def test_what_a_script_keeps_by_rank_is_no_newcomers_fault() -> None:
    shape = JobShape(steps=60, by_rank=True, every=50, verify_every=0)

    def kill(cluster: Cluster, injector: Injector) -> None:
        injector.inject("trainer")

    result = passes(simulate(Setup(seed=1, jobs=(shape,)), script=at_step(8, kill)))
    (told,) = job_events(result, "state_differs")
    assert told["step"] < 50 and told["name"] == THING
    assert not unfit(result) and len(job_events(result, "job_failed")) == 1


@pytest.mark.parametrize("name", ["newcomer whatever", "blame a newcomer", "kept outside"])
def test_a_checker_sees(name: str) -> None:
    (bug,) = (bug for bug in BUGS if name in bug.name)
    assert hunt(bug).problem
