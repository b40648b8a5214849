"""Jobs that can't run, and those behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.context import Timing
from elasticd.core.leading.turns import Turns
from elasticd.core.taking_part.member import Member
from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .operators import Operator
from .run import simulate
from .scripts import cut_off
from .seeds import setup_of
from .test_sim import job_events, passes

FIRST, SECOND, THIRD = (JobId(f"job{n}-{n}-abcd") for n in (1, 2, 3))
SHORT = JobShape(steps=6)
THREE = JobShape(steps=40, world_min=3)


def when(cluster: Cluster, ready: Callable[[], bool], action: Callable[[], object]) -> None:
    """Do ``action`` once, soon after ``ready()``."""

    def look() -> None:
        if ready():
            action()
        else:
            cluster.after(0.05, look)

    look()


def status(cluster: Cluster, job: JobId) -> dict[str, object]:
    node = cluster.living()[0].node
    assert node is not None
    unknown: dict[str, object] = {"state": "unknown", "reason": None, "step": 0}
    return node.job_status(job) if job in node.records else unknown


def done(cluster: Cluster, job: JobId) -> bool:
    return status(cluster, job)["state"] == "finished"


def behind(cluster: Cluster, *shapes: JobShape) -> None:
    """Submit these, one after the other, when the jobs before are known everywhere."""

    def known() -> bool:
        nodes = [host.node for host in cluster.living()]
        return all(node is not None and job in node.records for node in nodes for job in jobs)

    def submit() -> None:
        Operator(cluster).submit(shapes[0])
        behind(cluster, *shapes[1:])

    if shapes:
        jobs = list(cluster.specs)
        when(cluster, known, submit)


def yields(cluster: Cluster) -> int:
    return sum(emit.kind == "job_yielded" for _, _, emit in cluster.checkers.events)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_for_more_nodes_than_there_are_keeps_nobody_waiting(seed: int) -> None:
    """It runs as soon as its nodes are there and nothing else runs."""
    seen: list[dict[str, object]] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        away = cluster.hosts[NodeId("n2")]
        away.crash(power=False)
        behind(cluster, SHORT, SHORT)

        def look() -> None:
            seen.append(status(cluster, FIRST))
            away.start()

        when(cluster, lambda: done(cluster, SECOND), look)

    setup = Setup(seed=seed, jobs=(replace(SHORT, world_min=3),))
    result = passes(simulate(setup, script=script))
    assert "needs 3 nodes and may run on 2" in str(seen[0]["reason"]), seen
    assert yields(result.cluster) == 1


def test_where_all_nodes_are_drained_the_reason_names_them() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)
        names = sorted(cluster.hosts)

        def parked() -> bool:
            found = status(cluster, FIRST)
            told = f"drained: {', '.join(names)}" in str(found["reason"])
            return found["state"] == "parked" and told

        def undrain() -> None:
            for name in names:
                operator.undrain(name)

        for name in names:
            operator.drain(name)
        when(cluster, parked, undrain)

    passes(simulate(Setup(seed=1, jobs=(SHORT,)), script=script))


@pytest.mark.parametrize("seed", range(3))
def test_a_job_without_its_files_keeps_nobody_waiting(seed: int) -> None:
    """No node has them. Two such jobs don't take turns for ever."""
    seen: list[object] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        cluster.missing_archives.update((FIRST, SECOND))
        behind(cluster, SHORT, SHORT)

        def later() -> None:
            seen.append(yields(cluster))
            seen.extend(status(cluster, job) for job in (FIRST, SECOND))
            cluster.missing_archives.clear()

        when(cluster, lambda: done(cluster, THIRD), lambda: cluster.after(90.0, later))

    setup = Setup(seed=seed, jobs=(SHORT,), limit_seconds=250.0)
    passes(simulate(setup, script=script))
    count, first, second = seen
    assert isinstance(count, int) and 1 <= count <= 4, seen
    assert "the job's files could not be brought here: no peer has it" in str((first, second))


def test_a_job_that_keeps_its_turn_in_vain_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(Turns, "yields", lambda *given: "")
    setup = Setup(seed=1, nodes=2, jobs=(SHORT, SHORT), lost=((1, 0.0),))
    assert "the jobs do not end" in simulate(setup).problem


def test_a_job_that_waits_and_does_not_say_why_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(Member, "trouble", "")
    setup = Setup(seed=1, nodes=2, jobs=(SHORT, SHORT), lost=((1, 0.0),))
    assert "what can't run does not say why" in simulate(setup).problem


@pytest.mark.parametrize("stored", [True, False])
def test_one_that_lost_its_nodes_keeps_its_turn_for_longer_if_steps_are_not_stored(
    stored: bool,
) -> None:
    times: list[float] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        behind(cluster, SHORT)
        away = [cluster.hosts[NodeId(name)] for name in ("n1", "n2")]

        def lose() -> None:
            times.append(cluster.now)
            for host in away:
                host.crash(power=False)

        def back() -> None:
            times.append(cluster.now)
            for host in away:
                host.start()

        when(cluster, lambda: status(cluster, FIRST)["step"] == 7, lose)
        when(cluster, lambda: done(cluster, SECOND), back)

    first = JobShape(steps=60, world_min=3, every=1 if stored else 50, replicas=3)
    setup = Setup(
        seed=1, jobs=(first,), grain_seconds=(0.2, 0.2), timing=Timing(yield_seconds=60.0)
    )
    result = passes(simulate(setup, script=script))
    assert done(result.cluster, FIRST)
    lost, back = times
    assert (back - lost < 50.0) == stored, times
    told = [e.reason or "" for _, _, e in result.cluster.checkers.events]
    assert not [why for why in told if "was started again" in why], "it has yielded its turn"
    assert status(result.cluster, FIRST)["lost_steps"] == (0 if stored else 7)


def test_a_side_of_a_cut_that_is_too_small_takes_no_turn_from_the_other() -> None:
    """Of three nodes two train on; the third, alone, has another job that could run there."""

    def script(cluster: Cluster, injector: Injector) -> None:
        behind(cluster, SHORT)
        alone = NodeId("n2")

        def strike() -> None:
            cluster.after(150.0, cut_off(cluster, injector, alone, close=True))

        when(cluster, lambda: int(str(status(cluster, FIRST)["step"])) >= 7, strike)

    first = JobShape(steps=1200, world_min=2, every=5000, replicas=2)
    setup = Setup(
        seed=1, jobs=(first,), grain_seconds=(0.05, 0.05), timing=Timing(yield_seconds=60.0)
    )
    result = passes(simulate(setup, script=script))
    assert done(result.cluster, FIRST) and not job_events(result, "job_yielded")
    starts = [world.step for world in result.cluster.checkers.forms.values() if world.job == FIRST]
    assert sorted(starts)[1] >= 7, "nothing was lost"


def test_one_whose_nodes_come_back_late_has_its_turn_still() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        behind(cluster, THREE)
        away = cluster.hosts[NodeId("n2")]

        def lose() -> None:
            away.crash(power=False)
            cluster.after(40.0, away.start)

        when(cluster, lambda: int(str(status(cluster, FIRST)["step"])) >= 7, lose)

    result = passes(simulate(Setup(seed=1, jobs=(THREE,)), script=script))
    assert not job_events(result, "job_yielded")
    assert done(result.cluster, FIRST) and done(result.cluster, SECOND)


def test_a_queued_job_says_behind_whom() -> None:
    seen: list[object] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        behind(cluster, SHORT, SHORT)

        def look() -> None:
            seen.extend(status(cluster, job)["reason"] for job in (SECOND, THIRD))

        when(cluster, lambda: status(cluster, THIRD)["state"] == "queued", look)

    passes(simulate(Setup(seed=1, jobs=(JobShape(steps=20),)), script=script))
    assert seen == [f"behind {FIRST}", f"behind {FIRST} and 1 more"]


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_under_faults(first: int) -> None:
    """One job can never run, one needs all nodes: what can run ends, whatever breaks."""
    kinds = ("submit", "cancel", "pause", "drain", "node", "daemon", "partition", "crash", "flap")
    for seed in range(first, first + 4):
        setup = setup_of(seed, kinds)
        never = replace(SHORT, world_min=setup.nodes + 1)
        most = replace(SHORT, world_min=setup.nodes)
        passes(simulate(replace(setup, jobs=(never, most, *setup.jobs))))
