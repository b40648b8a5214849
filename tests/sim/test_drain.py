"""Nodes that are drained, and that take part again."""

from __future__ import annotations

import pytest

from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .operators import Operator
from .run import Result, simulate
from .scripts import Script, at_step, newest
from .seeds import setup_of
from .test_sim import passes
from .trainer import Trainer

JOB = JobId("job1-1-abcd")


def drain_at(step: int, name: str, seconds: float = 4.0) -> Script:
    """Drain a node, and undrain it so long after its children have ended."""

    def script(cluster: Cluster, injector: Injector) -> None:
        operator, host = Operator(cluster), cluster.hosts[NodeId(name)]

        def empty() -> bool:
            return (
                host.node is not None
                and host.node.tables.nodes.draining(host.name)
                and not (host.children)
            )

        def strike() -> None:
            operator.drain(host.name)
            cluster.when(empty, lambda: cluster.after(seconds, undrain))

        def undrain() -> None:
            assert host.node is not None and host.node.state_of(host.name) == "draining"
            assert not host.children
            operator.undrain(host.name)

        cluster.when(lambda: newest(cluster) >= step, strike)

    return script


def formed(result: Result) -> list[str]:
    return [line for line in result.transcript if "event world_formed" in line]


@pytest.mark.parametrize("name", ["n0", "n2"])
@pytest.mark.parametrize("seed", range(5))
def test_its_rank_leaves_at_a_boundary_and_comes_back(seed: int, name: str) -> None:
    setup = Setup(seed=seed, jobs=(JobShape(steps=200),))
    result = passes(simulate(setup, script=drain_at(10, name)))
    sizes = [line.partition("world_formed: ")[2][0] for line in formed(result)]
    assert sizes == ["3", "2", "3"], "\n".join(formed(result))
    _, without, back = formed(result)
    assert f"{name} is to be left out" in without and f"{name} may enter" in back
    (status,) = [h.node.job_status(JOB) for h in result.cluster.living()[:1] if h.node is not None]
    assert (status["recoveries"], status["lost_steps"]) == (0, 0)


def test_one_that_is_needed_stays_until_others_can_go_on() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)
        cluster.when(lambda: newest(cluster) >= 5, lambda: operator.drain_for(NodeId("n0"), 2.0))

    setup = Setup(seed=1, nodes=2, jobs=(JobShape(steps=60, world_min=2),))
    result = passes(simulate(setup, script=script))
    assert len(formed(result)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_world_that_needs_one_gets_a_new_trainer_beside_it(seed: int) -> None:
    """The other member's dies: with too few nodes but for the drained one it is begun again."""

    def script(cluster: Cluster, injector: Injector) -> None:
        Operator(cluster).drain(NodeId("n1"))
        for child in list(cluster.hosts[NodeId("n0")].children.values()):
            if isinstance(child, Trainer):
                child.die(-9)

    jobs = (JobShape(steps=300, world_min=2),)
    passes(simulate(Setup(seed=seed, nodes=2, jobs=jobs), script=at_step(10, script)))


def test_it_survives_the_restart_of_every_daemon() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)

        def restart() -> None:
            for host in cluster.hosts.values():
                host.crash(power=False)
                cluster.after(1.0, host.start)
            cluster.after(8.0, look)

        def look() -> None:
            for host in cluster.hosts.values():
                assert host.node is not None and host.node.state_of(NodeId("n1")) == "draining"
            assert not cluster.hosts[NodeId("n1")].children
            operator.undrain(NodeId("n1"))

        def strike() -> None:
            operator.drain(NodeId("n1"))
            cluster.after(3.0, restart)

        cluster.when(lambda: newest(cluster) >= 5, strike)

    passes(simulate(Setup(seed=3, jobs=(JobShape(steps=300),)), script=script))


def test_under_faults() -> None:
    kinds = ("drain", "trainer", "daemon", "processes", "flap", "partition")
    for seed in range(20):
        passes(simulate(setup_of(seed, kinds)))
