"""A job that was paused goes on where it rested: from an older step only when nobody has that one
any more for a while, and never without a word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticd.types import JobId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .host import Host
from .operators import Operator
from .run import Result, simulate
from .scripts import Script, at_step, newest
from .test_sim import job_events, passes

JOB = JobId("job1-1-abcd")
RESTS_FROM = 12
"""The pause is asked for at this step, or soon after. The node that is away has less."""

Hosts = list[Host]
Then = Callable[[Cluster, Host, Hosts], object]


def alone(then: Then) -> Script:
    """A node was away when the job came to rest. It is back and the others are not when somebody
    resumes the job there, and ``then`` follows."""

    def leave(cluster: Cluster, injector: Injector) -> None:
        one, *others = (cluster.hosts[name] for name in sorted(cluster.hosts))
        one.crash(power=False)
        cluster.when(lambda: newest(cluster) >= RESTS_FROM, lambda: pause(cluster, one, others))

    def pause(cluster: Cluster, one: Host, others: Hosts) -> None:
        Operator(cluster).pause(JOB, others[0])
        cluster.when(lambda: rests(others[0]), one.start)
        cluster.when(lambda: rests(one), lambda: part(cluster, one, others))

    def part(cluster: Cluster, one: Host, others: Hosts) -> None:
        for host in others:
            host.crash()
        Operator(cluster).resume(JOB, one)
        then(cluster, one, others)

    return at_step(7, leave)


def rests(host: Host) -> bool:
    node = host.node
    record = node.records.get(JOB) if node is not None else None
    return record is not None and bool(record.rested)


def run(seed: int, then: Then) -> Result:
    shape = JobShape(replicas=3)  # the node that is away has all of the older ones
    return simulate(
        Setup(seed=seed, nodes=3, jobs=(shape,), limit_seconds=600.0), script=alone(then)
    )


@pytest.mark.parametrize("seed", range(4))
def test_who_has_less_waits_for_the_others_first(seed: int) -> None:
    def come(cluster: Cluster, one: Host, others: Hosts) -> None:
        for host in others:
            cluster.after(10.0, host.start)

    result = passes(run(seed, come))
    assert not any(f["lost_steps"] for f in job_events(result, "recovery_finished"))


@pytest.mark.parametrize("seed", range(4))
def test_then_it_goes_on_and_tells_what_is_lost(seed: int) -> None:
    def stay_away(cluster: Cluster, one: Host, others: Hosts) -> None:
        for host in others:
            cluster.when(lambda: newest(cluster) >= 20, host.start)

    result = passes(run(seed, stay_away))
    (rest,) = job_events(result, "job_paused")
    (back,) = [f for f in job_events(result, "recovery_finished") if f["rung"] == "restore"]
    assert 0 < back["lost_steps"] == rest["step"] - back["resume_step"] and back["seconds"] > 15
