"""In a new view nobody has spoken yet, however long the job has been as it is: nothing is decided
before its members have said how they are, or had their time."""

from __future__ import annotations

import pytest

from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .leaving import Leaving
from .operators import Operator
from .run import simulate
from .scripts import cut_off, led, newest
from .starting import takes
from .test_pause import status
from .test_sim import job_events, passes

JOB = JobId("job1-1-abcd")
N0, N2, N3 = NodeId("n0"), NodeId("n2"), NodeId("n3")
MAIN_SECONDS, LONG = 30.0, 20.0


@pytest.mark.parametrize("seed", range(3))
def test_a_pause_of_a_parked_job_waits_for_the_steps_that_its_trainers_hold(seed: int) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[N2]

        def part() -> None:
            host.crash(power=False)
            cluster.after(LONG, pause)
            cluster.after(LONG + 5.0, look)
            cluster.after(LONG + 10.0, host.start)
            cluster.when(lambda: status(cluster)["state"] == "paused", resume)

        def pause() -> None:
            Operator(cluster).pause(JOB, cluster.hosts[N0])

        def look() -> None:
            reason = str(status(cluster)["reason"])
            assert "it is to be paused" in reason and "2 of at least 3 members" in reason

        def resume() -> None:
            Operator(cluster).resume(JOB)

        cluster.when(lambda: newest(cluster) >= 12, part)

    shape = JobShape(steps=40, every=10, world_min=3)
    result = passes(simulate(Setup(seed=seed, jobs=(shape,), limit_seconds=600.0), script=script))
    assert status(result.cluster)["lost_steps"] == 0
    (rest,) = job_events(result, "job_paused")
    assert rest["step"] >= 12


@pytest.mark.parametrize("seed", range(3))
def test_a_job_is_not_over_while_main_exports_though_a_node_joins(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def behind(self: Leaving):  # type: ignore[no-untyped-def]
        host = self.trainer.host
        seconds = MAIN_SECONDS if host.name == N0 else 0.05
        yield takes(self.trainer, "ends", seconds, seconds)
        ended.append(host.name)

    monkeypatch.setattr(Leaving, "behind", behind)

    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[N3]
        cluster.when(lambda: newest(cluster) >= 5, lambda: host.crash(power=False))
        # Another node leads then than the one where main is.
        cluster.when(lambda: newest(cluster) >= 15, lambda: cluster.hosts[N0].restart_daemon(1.0))
        cluster.when(lambda: newest(cluster) >= 60, lambda: cluster.after(8.0, host.start))
        cluster.when(lambda: newest(cluster) >= 60, lambda: leads_elsewhere(cluster))

    def leads_elsewhere(cluster: Cluster) -> None:
        assert led(cluster).name != N0

    setup = Setup(seed=seed, nodes=4, jobs=(JobShape(steps=60, every=10),), limit_seconds=600.0)
    passes(simulate(setup, script=script))
    assert N0 in ended


@pytest.mark.parametrize("seed", range(3))
def test_a_world_goes_on_untouched_when_a_cut_heals(seed: int) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        def strike() -> None:
            heal = cut_off(cluster, injector, N0, True)
            cluster.after(LONG, heal)

        cluster.when(lambda: newest(cluster) >= 12, strike)

    shape = JobShape(steps=400, every=10, world_min=3)
    setup = Setup(seed=seed, nodes=4, jobs=(shape,), limit_seconds=600.0)
    result = passes(simulate(setup, script=script))
    rungs = [fields["rung"] for fields in job_events(result, "world_formed")]
    assert "retry" not in rungs
