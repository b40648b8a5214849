"""When nobody lives who knew how far a job had come, its steps are still counted as lost."""

from __future__ import annotations

import pytest

from elasticd.types import JobId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import simulate
from .scripts import at_step, newest
from .test_sim import job_events, passes

JOB = JobId("job1-1-abcd")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("power", [False, True], ids=["processes die", "power fails"])
def test_the_whole_cluster_dies_and_says_what_was_lost(power: bool, seed: int) -> None:
    reached: list[int] = []

    def strike(cluster: Cluster, injector: Injector) -> None:
        nodes = [host.node for host in cluster.living() if host.node is not None]
        reached.append(max(node.members.by_job[JOB].reports.committed for node in nodes))
        assert reached[0] >= newest(cluster) - 1, "at most the last step's message is on its way"
        for host in cluster.hosts.values():
            host.crash(power)
            cluster.after(1.0, host.start)

    setup = Setup(seed=seed, jobs=(JobShape(steps=60, every=20),))
    result = passes(simulate(setup, script=at_step(33, strike)))
    (found,) = job_events(result, "recovery_finished")
    assert found["rung"] == "restore"
    lost = reached[0] - found["resume_step"]
    # A power cut takes the marks, which are never synced, and leaves what nobody can know of.
    assert found["lost_steps"] == (0 if power else lost)
    assert lost >= 12
    node = result.cluster.living()[0].node
    assert node is not None and node.job_status(JOB)["lost_steps"] == found["lost_steps"]
