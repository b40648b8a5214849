"""What operators ask of real daemons: pause and resume, drain and undrain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from tests.integration.cluster import STEPS, Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

SLOW = ["--pace-seconds", "0.2"]


def test_a_paused_job_goes_on_with_the_same_bits(
    cluster: Cluster, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", recovery__spare="none", job__args=SLOW)
    before = cluster.wait_whole(job, 3)
    pids = {rank["pid"] for rank in before["ranks"]}
    assert cluster.command("pause", job) == f"{job} paused\n"
    assert cluster.command("pause", job) == f"{job} paused\n", "again is no error"

    def rests() -> dict[str, Any] | None:
        status = cluster.status(job)
        gone = not any(one.alive for one in cluster.seen if one.pid in pids)
        return status if status["state"] == "paused" and gone else None

    status = cluster.wait_for("rest", rests)
    assert 3 <= status["step"] < STEPS and status["ranks"] == []
    assert cluster.command("resume", job).startswith(f"{job} ")
    check(cluster, job, "high.py", expected)
    unheard = len(cluster.unheard(job))
    assert cluster.status(job)["recoveries"] <= unheard, cluster.report("recoveries", job)
    assert cluster.run("pause", job).returncode == 1, "it has ended"
    assert cluster.run("pause", "no-such-job").returncode == 1


def test_a_drained_node_leaves_and_comes_back(
    cluster: Cluster, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.5"])
    before = cluster.wait_whole(job, 4)
    said = cluster.command("drain", "node-2").splitlines()
    # As far as the job is when the command asks.
    notes = (f"still has a rank of {job}", f"wait until {job} has regrouped", "may be switched off")
    assert said[0] in [f"node-2 draining: {note}" for note in notes], said

    def ranks_are(count: int) -> dict[str, Any] | None:
        status = cluster.status(job)
        there = status["state"] == "running" and len(status["ranks"]) == count
        return status if there else None

    status = cluster.wait_for("a world without it", lambda: ranks_are(3))
    assert "node-2" not in {rank["node"] for rank in status["ranks"]}
    gone = [rank["pid"] for rank in before["ranks"] if rank["node"] == "node-2"]

    def ended() -> bool:
        return not any(one.alive for one in cluster.seen if one.pid in gone)

    cluster.wait_for("the end of its trainer", ended)

    def drained() -> bool:
        nodes = {n["id"]: n["state"] for n in cluster.client.request(ShowStatus())["nodes"]}
        return nodes["node-2"] == "draining" and "may be switched off" in cluster.command("nodes")

    cluster.wait_for("it to be drained", drained)
    assert cluster.command("undrain", "node-2") == "node-2 alive\n"
    cluster.wait_for("a world with it", lambda: ranks_are(4))
    check(cluster, job, "high.py", expected)
    unheard = len(cluster.unheard(job))
    assert cluster.status(job)["recoveries"] <= unheard, cluster.report("recoveries", job)
    assert cluster.run("drain", "no-such-node").returncode == 1
