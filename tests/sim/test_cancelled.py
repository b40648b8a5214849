"""What is shown of a job that was cancelled, when its nodes come and go."""

from __future__ import annotations

import pytest

from elasticd.types import NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import simulate
from .scripts import at_step
from .test_sim import passes


@pytest.mark.parametrize("survivor", ["n0", "n1"])
@pytest.mark.parametrize("back", [0.5, 5.0], ids=["at once", "later"])
def test_its_steps_stay_when_other_nodes_return(survivor: str, back: float) -> None:
    """The one that stays leads only since the others went, and has nobody to ask."""
    told: dict[NodeId, int] = {}

    def strike(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[NodeId(survivor)]
        for other in cluster.hosts.values():
            if other is not host:
                other.crash()
                cluster.after(back, other.start)
        injector.operator.cancel(next(iter(cluster.specs)), host)

    result = passes(
        simulate(Setup(seed=1, nodes=3, jobs=(JobShape(steps=400),)), script=at_step(30, strike))
    )
    (job,) = result.cluster.specs
    for name, host in result.cluster.hosts.items():
        assert host.node is not None
        status = host.node.job_status(job)
        assert status["state"] == "cancelled" and status["loss"] is not None, name
        told[name] = status["step"]
    assert len(set(told.values())) == 1 and min(told.values()) >= 20, told
