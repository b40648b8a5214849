"""What survives what: survivors in place, restores, leaders and submitters that die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pytest

from elasticd.recovery.exactness import FORGOTTEN
from elasticd.supervision.priority import BEHIND_DAEMONS
from tests.integration.cluster import STEPS, Cluster
from tests.integration.silence import asked_for, silent, times, wait_all
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.1"]
ALONE = ["--pace-seconds", "0.05"]
"""For a world of one, which fetches all samples of a step."""


def wait_stored(cluster: Cluster, job: str) -> None:
    """Until the world is whole, and a checkpoint of a later step than the first is stored."""
    cluster.wait_whole(job, 10)

    def stored() -> bool:
        return any(event["step"] >= 10 for event in cluster.kinds(job, "checkpoint_committed"))

    cluster.wait_for("a checkpoint", stored)


@pytest.mark.parametrize(
    ("process", "fault", "rung"),
    [
        ("trainer", "worker_exit", "regroup"),
        ("reducer", "reducer_lost", "retry"),
        ("node", "peer_lost", "regroup"),
    ],
)
def test_survivors_stay_in_place(
    cluster: Cluster, undisturbed: Undisturbed, process: str, fault: str, rung: str
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    before = wait_all(cluster, job, 5, 4)
    pids = {rank["node"]: rank["pid"] for rank in before["ranks"]}
    assert len(pids) == 4, cluster.report("not all are members", job)
    victim = before["ranks"][2]
    killed = [victim["node"]] if process == "node" else []
    for pid in victim["pid"], victim["reducer_pid"]:  # so that a busy machine loses no heartbeats
        assert psutil.Process(pid).nice() == psutil.Process().nice() + BEHIND_DAEMONS
    match process:
        case "trainer":
            struck = cluster.wait_for("rank 2", lambda: cluster.kill_trainer(job, 2))
            assert struck == victim["pid"]
        case "reducer":
            struck = cluster.wait_for("rank 2", lambda: cluster.kill_reducer(job, 2))
            assert struck == victim["reducer_pid"]
        case _:
            cluster.kill_node(victim["node"])

    def healed() -> dict[str, Any] | None:
        now = cluster.status(job)
        return now if now["ranks"] and now["generation"] > before["generation"] else None

    now = cluster.wait_for("a new generation", healed)
    after = {rank["node"]: rank["pid"] for rank in now["ranks"]}
    unasked = {event["node"] for event in silent(cluster, job, *killed)}
    for node, pid in pids.items():
        if (node != victim["node"] or process == "reducer") and node not in unasked:
            assert after.get(node) == pid, cluster.report(f"{node} lost its trainer", job)
    check(cluster, job, "high.py", expected)
    detected = [e for e in asked_for(cluster, job, *killed) if e["fault"] == fault]
    assert detected, cluster.report("another fault", job)
    named = detected[0]
    assert (named["node"], named["rank"]) == (victim["node"], 2), named
    assert named["evidence"] and named["seconds_to_detect"] >= 0
    once = times(cluster, job, 1, *killed)
    rungs = [e["rung"] for e in cluster.kinds(job, "recovery_finished")]
    same = rungs == [rung] or silent(cluster, job, *killed)
    assert same and len(rungs) in once, cluster.report("other recoveries", job)
    assert len(cluster.kinds(job, "recovery_started")) in once
    assert cluster.status(job)["recoveries"] in once


@pytest.mark.deep
def test_all_trainers_at_once_resume_from_the_checkpoint(
    cluster: Cluster, undisturbed: Undisturbed
) -> None:
    expected = undisturbed("low.py")
    job = cluster.submit("low.py", job__args=SLOW)
    wait_stored(cluster, job)
    cluster.wait_for("four trainers", lambda: cluster.kill_trainers(job, cluster.nodes))
    cluster.hurry(job)
    status = cluster.wait_end(job)
    assert status["digest"] == expected, cluster.report("another digest", job)
    restored = [e for e in cluster.kinds(job, "world_formed") if e["rung"] == "restore"]
    assert restored, cluster.report("no restore", job)
    assert restored[0]["resume_step"] >= 10 and restored[0]["resume_step"] % 10 == 0


@pytest.mark.parametrize("process", [pytest.param("trainer", marks=pytest.mark.deep), "node"])
def test_a_world_of_one_goes_on_from_its_checkpoint(
    cluster: Cluster, undisturbed: Undisturbed, process: str
) -> None:
    """Shards are kept on another node too, so that the node itself may go."""
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", world__max=1, job__args=ALONE)
    wait_stored(cluster, job)
    (rank,) = cluster.wait_whole(job, 10)["ranks"]
    killed = [rank["node"]] if process == "node" else []
    if process == "trainer":
        struck = cluster.wait_for("rank 0", lambda: cluster.kill_trainer(job, 0))
        assert struck == rank["pid"]
    else:
        cluster.kill_node(rank["node"])
    cluster.hurry(job)
    assert cluster.wait_end(job)["digest"] == expected, cluster.report("another digest", job)
    restored = [e for e in cluster.kinds(job, "world_formed") if e["rung"] == "restore"]
    once = len(restored) in times(cluster, job, 1, *killed)
    assert once and restored[-1]["resume_step"] >= 10, cluster.report("restore", job)
    cluster.check_ledger(job, STEPS, cumulative=True)


def test_power_cut_of_everything(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    wait_stored(cluster, job)
    cluster.kill_nodes(cluster.nodes)
    cluster.wait_for("nothing to be left", lambda: not cluster.leftovers())
    cluster.revive()
    cluster.hurry(job)
    status = cluster.wait_end(job)
    assert status["digest"] == expected, cluster.report("another digest", job)
    restored = [e for e in cluster.kinds(job, "world_formed") if e["rung"] == "restore"]
    assert restored and restored[0]["resume_step"] >= 10, cluster.report("no restore", job)

    def complete() -> list[dict[str, Any]] | None:
        told = [cluster.events(job, node) for node in cluster.nodes]
        same = all(history == told[0] for history in told)
        return told[0] if same and told[0][-1]["kind"] == "job_finished" else None

    history = cluster.wait_for("the whole history on every node", complete)
    assert history[0]["kind"] == "job_submitted"
    assert {"world_formed", "recovery_finished", "checkpoint_committed"} <= {
        event["kind"] for event in history
    }


def test_the_leaders_node_is_killed(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("low.py")
    job = cluster.submit("low.py", job__args=SLOW)
    cluster.wait_whole(job, 10)
    leader = cluster.view()["leader"]
    cluster.kill_node(leader)
    check(cluster, job, "low.py", expected)
    assert cluster.view()["leader"] != leader
    faults = [e for e in asked_for(cluster, job, leader) if e["fault"] == "peer_lost"]
    assert [e["node"] for e in faults] == [leader], cluster.report("the leader's death", job)
    once = times(cluster, job, 1, leader)
    assert cluster.status(job)["recoveries"] in once
    assert len(cluster.kinds(job, "recovery_finished")) in once


@pytest.mark.deep
def test_what_a_script_was_shown_to_keep_to_itself_is_lost_with_all_who_had_it(
    cluster: Cluster,
) -> None:
    """A node that joins shows it; then all others die, and the job goes back to a checkpoint."""
    job = cluster.submit("outside.py", job__args=SLOW, recovery__spare="none", train__steps=100)
    wait_stored(cluster, job)
    cluster.wait_for("rank 1", lambda: cluster.kill_trainer(job, 1))
    told = cluster.wait_for("who joins", lambda: cluster.kinds(job, "node_unfit"))
    assert cluster.status(job)["exact"] is True
    cluster.wait_for("the others", lambda: cluster.kill_trainers(job))
    cluster.hurry(job)
    status = cluster.wait_end(job)
    assert status["exact"] is False, cluster.report("it is called exact", job)
    assert status["exact_reason"].startswith(FORGOTTEN)
    assert told[0]["node"] in status["exact_reason"]
    (lost,) = cluster.kinds(job, "exact_lost")
    assert lost["reason"] == status["exact_reason"]


@pytest.mark.deep
def test_the_submitters_node_is_killed_at_once(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    node = next(n for n in cluster.nodes if n != cluster.view()["leader"])
    job = cluster.submit("high.py", at=node)
    cluster.kill_node(node)
    check(cluster, job, "high.py", expected)
