"""Jobs that are paused, resumed and queued by priority."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from elasticd.core.duties import Flush
from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .host import Host
from .operators import Operator
from .run import Result, simulate
from .scripts import Script, led, newest
from .seeds import setup_of
from .test_sim import job_events, passes
from .trainer import Trainer

JOB = JobId("job1-1-abcd")


def status(cluster: Cluster, job: JobId = JOB) -> dict[str, object]:
    node = cluster.living()[0].node
    assert node is not None
    return node.job_status(job) if job in node.records else {"state": "unknown"}


def rests(cluster: Cluster) -> bool:
    return status(cluster)["state"] == "paused" and not any(
        host.children for host in cluster.hosts.values()
    )


def pause_at(step: int, seconds: float) -> Script:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)

        def strike() -> None:
            operator.pause(JOB)
            cluster.when(lambda: rests(cluster), lambda: cluster.after(seconds, resume))

        def resume() -> None:
            cluster.say("test", f"is resumed from {status(cluster)['step']}")
            operator.resume(JOB)

        cluster.when(lambda: newest(cluster) >= step, strike)

    return script


def formed(result: Result) -> list[str]:
    return [line for line in result.transcript if "event world_formed" in line]


@pytest.mark.parametrize("seed", range(10))
def test_a_paused_job_loses_no_step_and_counts_no_recovery(seed: int) -> None:
    setup = Setup(seed=seed, jobs=(JobShape(steps=40, every=50),))
    result = passes(simulate(setup, script=pause_at(10, 5.0)))
    found = status(result.cluster)
    assert (found["recoveries"], found["lost_steps"]) == (0, 0)
    (rest,) = [line.split()[-1] for line in result.transcript if " is resumed from " in line]
    assert len(formed(result)) == 2
    assert f"go on from step {rest}:" in formed(result)[1]


@pytest.mark.parametrize("step", [-1, 0, 38])
def test_before_it_runs_and_close_to_its_end(step: int) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)
        cluster.when(lambda: newest(cluster) >= step, lambda: operator.pause_for(JOB, 3.0))

    passes(simulate(Setup(seed=1, jobs=(JobShape(steps=40),)), script=script))


def test_while_it_recovers_and_its_leader_dies() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)

        def strike() -> None:
            injector.inject("trainer")
            operator.pause_for(JOB, 4.0, cluster.hosts[NodeId("n2")])
            cluster.after(0.2, lambda: cluster.hosts[NodeId("n0")].crash(power=False))
            cluster.after(6.0, cluster.hosts[NodeId("n0")].start)

        cluster.when(lambda: newest(cluster) >= 10, strike)

    for seed in range(6):
        passes(simulate(Setup(seed=seed, jobs=(JobShape(steps=60),)), script=script))


def test_pausing_twice_is_pausing_once() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)

        def strike() -> None:
            for name in ("n0", "n1", "n2"):
                operator.pause(JOB, cluster.hosts[NodeId(name)])
            cluster.when(lambda: rests(cluster), partial(operator.resume, JOB))

        cluster.when(lambda: newest(cluster) >= 5, strike)

    result = passes(simulate(Setup(seed=2, jobs=(JobShape(steps=30),)), script=script))
    assert len(formed(result)) == 2


def test_a_paused_job_makes_room_and_a_cancel_ends_it() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)
        other = JobId("job2-2-abcd")

        def after() -> None:
            assert status(cluster)["state"] == "paused"
            operator.cancel(JOB)

        cluster.when(lambda: newest(cluster) >= 5, partial(operator.pause, JOB))
        cluster.when(lambda: status(cluster, other)["state"] == "finished", after)

    shapes = (JobShape(steps=60), JobShape(steps=6))
    result = passes(simulate(Setup(seed=3, jobs=shapes), script=script))
    assert status(result.cluster)["state"] == "cancelled"


def test_the_queue_goes_by_priority_and_then_by_number() -> None:
    order: list[str] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[NodeId("n0")]
        for number, priority in ((2, 0), (3, 5), (4, 5)):
            record = cluster.record_of(JOB)
            assert record is not None
            spec = record.spec | {"job": record.spec["job"] | {"priority": priority}}
            job = JobId(f"job{number}-{number}-abcd")
            cluster.specs[job], cluster.shapes[job] = cluster.specs[JOB], cluster.shapes[JOB]
            made = replace(record, id=job, number=number, spec=spec, state="queued", turn=0)
            host.post(e.Submit(100 + number, made))

        def queue() -> list[JobRecord]:
            return host.node.tables.jobs.queue() if host.node is not None else []

        def look() -> None:
            order.extend(f"{j.id}:{status(cluster, j.id)['queue_position']}" for j in queue())

        cluster.when(lambda: len(queue()) == 4, look)

    def later(cluster: Cluster, injector: Injector) -> None:
        cluster.when(lambda: newest(cluster) >= 0, lambda: script(cluster, injector))

    result = passes(simulate(Setup(seed=4, jobs=(JobShape(steps=6, every=3),)), script=later))
    assert order == [
        "job3-3-abcd:1", "job4-4-abcd:2", "job1-1-abcd:None", "job2-2-abcd:3",
    ]  # fmt: skip
    ends = [line.split()[2] for line in result.transcript if line.split()[1] == "end"]
    assert len(ends) == 4
    done = [line for line in result.transcript if "event job_finished" in line]
    assert len(done) == 4


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_under_faults(first: int) -> None:
    kinds = ("pause", "trainer", "daemon", "processes", "flap", "partition")
    for seed in range(first, first + 4):
        passes(simulate(setup_of(seed, kinds)))


@pytest.mark.parametrize("seed", range(3))
def test_what_broke_just_before_it_came_to_rest_is_told(seed: int) -> None:
    """All trainers die, and it is paused before they are there again: what they held is lost."""

    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)

        def pause() -> None:
            operator.pause(JOB)

        def strike() -> None:
            for host in cluster.living():
                for child in list(host.children.values()):
                    if isinstance(child, Trainer):
                        child.kill()
            cluster.after(0.3, pause)
            cluster.when(lambda: rests(cluster), partial(operator.resume, JOB))

        cluster.when(lambda: newest(cluster) >= 18, strike)

    setup = Setup(seed=seed, jobs=(JobShape(steps=40, every=10),), limit_seconds=600.0)
    result = passes(simulate(setup, script=script))
    (rest,) = job_events(result, "job_paused")
    (back,) = job_events(result, "recovery_finished")
    assert job_events(result, "fault_detected") and rest["step"] >= 18
    assert back["lost_steps"] == rest["step"] - back["resume_step"] > 0
    found = status(result.cluster)
    assert (found["recoveries"], found["lost_steps"]) == (1, back["lost_steps"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("away", [1.0, 8.0])
def test_a_leader_that_dies_as_it_writes_of_the_rest_stops_nobody_who_was_resumed(
    seed: int, away: float
) -> None:
    """It knows alone that the job rests, and others were told to resume it."""

    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)

        def resume() -> None:
            operator.resume(JOB, cluster.living()[0])

        def strike() -> None:
            leader = led(cluster)
            write = leader._written

            def written(flush: Flush) -> None:
                mine = [told.record for told in flush.records if told.kind == "job"]
                if not any(r.state == "queued" and r.paused for r in mine):
                    write(flush)
                    return
                leader._written = write  # type: ignore[method-assign]
                for told in flush.records:
                    leader.disk.append(told.kind, leader.release.cut(told.record))
                leader._flush = None
                die(leader)

            leader._written = written  # type: ignore[method-assign]
            operator.pause(JOB, leader)

        def die(leader: Host) -> None:
            leader.kill_daemon()
            cluster.after(0.01, resume)
            cluster.after(away, leader.start)
            died.append(leader.name)

        cluster.when(lambda: newest(cluster) >= 12, strike)

    died: list[str] = []
    setup = Setup(
        seed=seed, nodes=4, roles=("train", "store", "train", "train"),
        jobs=(JobShape(steps=400, every=1000),), limit_seconds=600.0,
    )  # fmt: skip
    result = passes(simulate(setup, script=script))
    assert died
    assert status(result.cluster)["lost_steps"] == 0
    assert all(fields["rung"] != "restore" for fields in job_events(result, "recovery_finished"))
