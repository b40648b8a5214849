"""Links that lose packets, and rings that stand still although every process runs."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.integration.cluster import Cluster
from tests.integration.loss import drop, ends, ends_towards, sent_again
from tests.integration.test_digest import check

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux filters at a socket"),
]

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.05"]


@pytest.mark.deep
def test_a_link_that_loses_packets_costs_nobody_its_place(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    """More of them one way than the other."""
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    one, other = cluster.wait_whole(job, 3)["ranks"][:2]
    daemons = [cluster.processes(rank["node"])[0].pid for rank in (one, other)]
    reducers = [one["reducer_pid"], other["reducer_pid"]]
    # A second's silence between daemons would rightly be a lost link: few enough not to make one.
    for (near, far), share in ((daemons, 0.03), (reducers, 0.06)):
        arriving = ends_towards(near, far)
        assert arriving
        drop(arriving, share)
        drop(ends_towards(far, near), share / 3)
    sending = ends_towards(reducers[1], reducers[0])
    cluster.wait_for("packets to be sent again", lambda: sent_again(sending))
    check(cluster, job, "high.py", expected)
    faults = {event["fault"] for event in cluster.faults(job)}
    # A busy machine may be silent for a second besides: the ring is laid anew then, with everybody.
    assert faults <= {"link_lost"}, cluster.report("TCP mends that", job)
    sizes = [len(world["members"]) for world in cluster.kinds(job, "world_formed")]
    assert sizes == sorted(sizes), cluster.report("somebody was given up", job)


@pytest.mark.deep
def test_a_ring_of_running_processes_stands_still(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    """Each waits for bytes that never come; no connection ends, the daemons hear one another."""
    expected = undisturbed("high.py")
    for _ in range(3):
        job = cluster.submit("high.py", job__args=SLOW)
        before = cluster.wait_whole(job, 5)
        drop(ends(before["ranks"][1]["reducer_pid"]), 1.0)
        cluster.hurry(job)
        check(cluster, job, "high.py", expected)
        found = cluster.faults(job)
        # A daemon that a busy machine does not let run is missed, and the ring made anew for that.
        if found and found[0]["fault"] not in ("link_lost", "peer_lost"):
            break
    assert found and found[0]["fault"] == "hang", cluster.report("another fault", job)
    assert "every member delivered step" in found[0]["reason"]
    assert "nothing moved for" in found[0]["reason"]
    finished = cluster.kinds(job, "recovery_finished")[0]
    assert finished["rung"] == "retry", cluster.report("trainers were replaced", job)
