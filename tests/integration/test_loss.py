"""Links that lose packets, and rings that stand still although every process runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.loss import drop, ends, ends_towards, sent_again
from tests.integration.test_digest import check

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux filters at a socket"),
]

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.01"]


def kinds(cluster: Cluster, job: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in cluster.events(job) if event["kind"] == kind]


def test_a_link_that_loses_packets_costs_nobody_its_place(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    """More of them one way than the other."""
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    one, other = cluster.wait_whole(job, 3)["ranks"][:2]
    daemons = [cluster.processes(rank["node"])[0].pid for rank in (one, other)]
    reducers = [one["reducer_pid"], other["reducer_pid"]]
    epoch = cluster.view()["epoch"]
    links = [(ends_towards(*pids), ends_towards(*pids[::-1])) for pids in (reducers, daemons)]
    for near, far in links:
        assert near and far
        drop(near, 0.06)
        drop(far, 0.02)
    for _, far in links:
        cluster.wait_for("packets to be sent again", lambda far=far: sent_again(far))  # type: ignore[misc]
    check(cluster, job, "high.py", expected)
    faults = {event["fault"] for event in kinds(cluster, job, "fault_detected")}
    assert faults <= {"slow"}, cluster.report("TCP mends that", job)
    assert cluster.view()["epoch"] == epoch, "nobody was missed"


def test_a_ring_of_running_processes_stands_still(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    """Each waits for bytes that never come; no connection ends, the daemons hear one another."""
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    before = cluster.wait_whole(job, 5)
    drop(ends(before["ranks"][1]["reducer_pid"]), 1.0)
    cluster.hurry(job)
    check(cluster, job, "high.py", expected)
    faults = [e for e in kinds(cluster, job, "fault_detected") if e["fault"] != "slow"]
    assert [e["fault"] for e in faults] == ["hang"], cluster.report("other faults", job)
    assert "every member delivered step" in faults[0]["reason"]
    assert "nothing moved for" in faults[0]["reason"]
    rungs = [event["rung"] for event in kinds(cluster, job, "recovery_finished")]
    assert rungs == ["retry"], cluster.report(f"{rungs}", job)
    writers = {path.name for path in cluster.home.glob(f"*/output/{job}/ledger-*.jsonl")}
    assert writers == {f"ledger-{rank['pid']}.jsonl" for rank in before["ranks"]}, "in place"
