"""Views under simulated faults: who leaves, who parks, what becomes of two lineages."""

from __future__ import annotations

import pytest

from elasticd.core import effects as e

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .host import Host
from .run import simulate
from .scripts import at_step
from .test_sim import job_events, passes, recovery_seconds


def led(cluster: Cluster) -> Host:
    """The host whose daemon leads."""
    for host in cluster.living():
        if host.node is not None and host.node.views.leading:
            return host
    raise AssertionError("nobody leads")


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
