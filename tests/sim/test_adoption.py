"""Daemons that die alone and come back: their children train on meanwhile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from elasticd.core.context import Timing
from elasticd.core.node import Node, Who
from elasticd.core.words.stable import Found
from elasticd.types import NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .run import simulate
from .scripts import Script, newest
from .seeds import setup_of
from .test_sim import passes

Order = tuple[int, tuple[str, ...], float]
"""At a step, the daemons of these nodes, for so many seconds."""


def restarts(*orders: Order) -> Script:
    def script(cluster: Cluster, injector: Injector) -> None:
        def strike(names: tuple[str, ...], seconds: float) -> None:
            for name in names:
                cluster.hosts[NodeId(name)].restart_daemon(seconds)

        def reached(step: int) -> bool:
            return newest(cluster) >= step

        for step, names, seconds in orders:
            cluster.when(partial(reached, step), partial(strike, names, seconds))

    return script


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "orders",
    [
        ((5, ("n0",), 1.0), (25, ("n1",), 1.0), (45, ("n2",), 1.0)),
        ((5, ("n1", "n2"), 0.8),),
        ((5, ("n0", "n1", "n2"), 0.5),),
    ],
    ids=["rolling", "two", "all"],
)
def test_a_quick_restart_interrupts_no_step(seed: int, orders: tuple[Order, ...]) -> None:
    setup = Setup(seed=seed, jobs=(JobShape(steps=70),))
    result = passes(simulate(setup, script=restarts(*orders)))
    formed = [line for line in result.transcript if "event world_formed" in line]
    assert len(formed) == 1, "\n".join(formed)
    (status,) = [
        host.node.job_status(job)
        for host in result.cluster.living()[:1]
        for job in result.cluster.specs
        if host.node is not None
    ]
    assert status["recoveries"] == 0


def test_the_only_node_of_a_cluster(seed: int = 3) -> None:
    setup = Setup(seed=seed, nodes=1, jobs=(JobShape(steps=40),))
    result = passes(simulate(setup, script=restarts((5, ("n0",), 8.0))))
    assert sum("event world_formed" in line for line in result.transcript) == 1


def test_one_that_stays_away_is_left_out_and_let_in_again() -> None:
    setup = Setup(seed=4, jobs=(JobShape(steps=200),))
    result = passes(simulate(setup, script=restarts((5, ("n1",), 6.0))))
    formed = [line for line in result.transcript if "event world_formed" in line]
    assert [line.count(" members go on") for line in formed] == [1] * len(formed)
    sizes = [line.partition("world_formed: ")[2][0] for line in formed]
    assert sizes == ["3", "2", "3"], "\n".join(formed)


@pytest.mark.parametrize("seed", range(6))
def test_a_job_trains_on_without_most_of_its_daemons_and_is_not_called_parked(seed: int) -> None:
    told: list[dict[str, Any]] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        def look() -> None:
            node = cluster.hosts[NodeId("n2")].node
            assert node is not None
            told.extend(node.job_status(job) for job in cluster.specs)

        def strike() -> None:
            for name in ("n0", "n1"):
                cluster.hosts[NodeId(name)].restart_daemon(9.0)
            cluster.after(6.0, look)
            cluster.after(8.0, look)

        cluster.when(lambda: newest(cluster) >= 5, strike)

    shape = JobShape(steps=200, world_min=2, grains=6)
    setup = Setup(seed=seed, jobs=(shape,), grain_seconds=(0.05, 0.05))
    result = passes(simulate(setup, script=script))
    assert [each["state"] for each in told] == ["running"] * 2, told
    assert 5 < told[0]["step"] < told[1]["step"]
    assert told[0]["reason"].startswith("it trains on without n0 and n1, whose daemons"), told
    assert [each["node"] for each in told[1]["ranks"]] == ["n0", "n1", "n2"]
    assert not [line for line in result.transcript if "event job_parked" in line]
    for line in (each for each in result.transcript if "event recovery_finished" in each):
        seconds = float(line.partition(" took ")[2].partition(" s ")[0])
        assert seconds < 3.0, line


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("away", [28.0, 80.0])
def test_a_job_of_slow_steps_is_called_parked_once_at_most(seed: int, away: float) -> None:
    """Its ranks give up after a while without a daemon; until then they have trained."""

    def script(cluster: Cluster, injector: Injector) -> None:
        def strike() -> None:
            for name in ("n0", "n1"):
                cluster.hosts[NodeId(name)].restart_daemon(away)

        cluster.when(lambda: newest(cluster) >= 5, strike)

    shape = JobShape(steps=14, world_min=2, grains=6)
    setup = Setup(seed=seed, jobs=(shape,), grain_seconds=(3.0, 3.0))
    result = passes(simulate(setup, script=script))
    assert sum("event job_parked" in line for line in result.transcript) <= 1 + (away > 30)
    took = [
        float(line.partition(" took ")[2].partition(" s ")[0])
        for line in result.transcript
        if "event recovery_finished" in line
    ]
    assert sum(took) < away - 10, took


def test_finds_a_daemon_that_forgets_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Node.__init__

    def forgetful(self: Node, who: Who, found: Found) -> None:
        real(self, who, replace(found, leftovers=()))

    monkeypatch.setattr(Node, "__init__", forgetful)
    found = (simulate(setup_of(seed, ("daemon",))).problem for seed in range(10))
    assert "uses child number" in next(filter(None, found), "")


def test_a_child_that_does_not_come_back_is_ended() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        def strike() -> None:
            host = cluster.hosts[NodeId("n1")]
            for child in host.children.values():
                child.stop()
            host.restart_daemon(0.5)

        cluster.when(lambda: newest(cluster) >= 5, strike)

    setup = Setup(seed=5, jobs=(JobShape(steps=60),), timing=Timing(adopt_seconds=1.0))
    passes(simulate(setup, script=script))
