"""A job that has made steps is begun anew by nobody who has nothing of it, while others may; one
that had checkpoints never is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .operators import Operator
from .run import Result, simulate
from .scripts import Script, at_step, newest
from .test_sim import job_events, passes

JOB = JobId("job1-1-abcd")
ALONE_SECONDS = 90.0


Then = Callable[[Cluster], object]


def away(then: Then) -> Script:
    """All power fails. The other node is back at once, who has trained it ``then``."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        (trains,) = last_members(cluster)
        for name, host in cluster.hosts.items():
            host.crash(True)
            if name != trains:
                cluster.after(1.0, host.start)
        cluster.after(ALONE_SECONDS, lambda: look(cluster))

    def look(cluster: Cluster) -> None:
        (alone,) = cluster.living()
        assert alone.node is not None
        status = alone.node.job_status(JOB)
        assert status["state"] == "parked" and "the job has made steps before" in status["reason"]
        then(cluster)

    return at_step(12, strike)


def last_members(cluster: Cluster) -> tuple[NodeId, ...]:
    return max(cluster.checkers.forms.values(), key=lambda world: world.generation).members


def run(seed: int, then: Then) -> Result:
    """One node trains at a time, and has its checkpoints alone."""
    shape = JobShape(world_max=1, replicas=1)
    return simulate(
        Setup(seed=seed, nodes=2, jobs=(shape,), limit_seconds=600.0), script=away(then)
    )


def absent(cluster: Cluster) -> list[NodeId]:
    here = {host.name for host in cluster.living()}
    return [name for name in cluster.hosts if name not in here]


@pytest.mark.parametrize("seed", range(3))
def test_it_waits_for_the_node_that_has_its_checkpoints(seed: int) -> None:
    def comes(cluster: Cluster) -> None:
        for name in absent(cluster):
            cluster.hosts[name].start()

    result = passes(run(seed, comes))
    starts = [fields["rung"] for fields in job_events(result, "recovery_finished")]
    assert starts == ["restore"] and newest(result.cluster) == 20
    assert all(fields["parent"] for fields in job_events(result, "lineage_opened")[1:])


@pytest.mark.parametrize("seed", range(2))
def test_without_that_node_it_waits_for_a_word_that_ends_it(seed: int) -> None:
    said: list[str] = []

    def look(cluster: Cluster) -> None:
        (alone,) = cluster.living()
        assert alone.node is not None
        status = alone.node.job_status(JOB)
        said.append(f"{status['state']}: {status['reason']}")
        Operator(cluster).cancel(JOB)

    def given_up(cluster: Cluster) -> None:
        for name in absent(cluster):
            Operator(cluster).dismiss(name)
        cluster.after(10.0, lambda: look(cluster))

    result = run(seed, given_up)
    (why,) = said
    assert why.startswith("parked: the job had checkpoints") and f"cancel {JOB}" in why
    assert len(job_events(result, "lineage_opened")) == 1, result.problem


@pytest.mark.parametrize("seed", range(3))
def test_it_waits_for_the_disk_with_its_checkpoints(seed: int) -> None:
    """As where it is not mounted: the daemon has all that it knows, and finds an empty folder."""

    def strike(cluster: Cluster, injector: Injector) -> None:
        (host,) = cluster.hosts.values()
        host.crash(False)
        disk = host.disk
        apart = disk.finals, disk.shards
        disk.finals, disk.shards = {}, {}
        host.start()

        def mounted() -> None:
            assert host.node is not None
            status = host.node.job_status(JOB)
            assert status["state"] == "parked" and "had checkpoints" in status["reason"]
            other = host.node.job_status(JobId("job2-2-abcd"))
            assert other["state"] == "finished", "it gets its turn meanwhile"
            host.crash(False)
            disk.finals, disk.shards = apart
            host.start()

        cluster.after(ALONE_SECONDS, mounted)

    setup = Setup(seed=seed, nodes=1, jobs=(JobShape(), JobShape()), limit_seconds=600.0)
    result = passes(simulate(setup, script=at_step(12, strike)))
    (rung,) = (fields["rung"] for fields in job_events(result, "recovery_finished"))
    begun = [fields for fields in job_events(result, "lineage_opened") if not fields["parent"]]
    assert rung == "restore" and len(begun) == 2, "one of each job"
