"""Two nodes of which either may die, ten on one machine, and a network that is late and lossy."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.relay import RelayedCluster, Weather
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.065"]
MakeCluster = Callable[[Path, int], Cluster]


@pytest.mark.deep
def test_of_two_nodes_either_may_die(
    make_cluster: MakeCluster, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    with make_cluster(tmp_path, 2) as cluster:
        for leads in (True, False):
            job = cluster.submit("high.py", job__args=SLOW)
            cluster.wait_whole(job, 5)
            leader = cluster.view()["leader"]
            victim = next(n for n in cluster.nodes if (n == leader) is leads)
            cluster.kill_node(victim)
            check(cluster, job, "high.py", expected)
            assert cluster.status(job)["lost_steps"] == 0
            cluster.revive()


@pytest.mark.deep
def test_a_daemon_that_is_stopped_for_a_while(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    victim = cluster.wait_whole(job, 5)["ranks"][1]["node"]
    daemon = cluster.processes(victim)[0]
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        cluster.wait_for("a view without it", lambda: victim not in cluster.view()["members"])
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    check(cluster, job, "high.py", expected)
    cluster.wait_for("a view with it", lambda: victim in cluster.view()["members"])


@pytest.mark.deep
@pytest.mark.alone
def test_ten_nodes_on_one_machine(
    make_cluster: MakeCluster, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    with make_cluster(tmp_path, 10) as cluster:
        job = cluster.submit("high.py", world__max=3, recovery__spare="none", job__args=SLOW)
        before = cluster.wait_whole(job, 5)
        cluster.kill_node(before["ranks"][1]["node"])
        check(cluster, job, "high.py", expected)
        cluster.wait_for("nine", lambda: len(cluster.view()["members"]) == 9)


@pytest.mark.deep
def test_a_late_and_lossy_network_changes_nothing(
    kernels: Path, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("high.py")
    weather = Weather(delay_seconds=0.01, stall_chance=0.02, break_chance=0.002)
    with RelayedCluster(tmp_path, 3, kernels, weather) as cluster:
        job = cluster.submit("high.py", job__args=SLOW)
        check(cluster, job, "high.py", expected)
        assert cluster.relays.stalls and cluster.relays.pieces > 100
