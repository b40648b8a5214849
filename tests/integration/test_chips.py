"""Machines whose chips round otherwise train together, and nobody is blamed for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


@pytest.mark.parametrize("size", [2, 3])
def test_chips_that_update_otherwise_train_together(cluster: Cluster, size: int) -> None:
    """All take one member's state whenever theirs differ, and it is stored then."""
    # Five steps take longer than to write a checkpoint: what differs meanwhile is not stored.
    arguments = ["--trouble", "chip", "--node", "node-1", "--pace-seconds", "0.03"]
    settings: dict[str, Any] = {
        "recovery__verify_every": 5, "train__steps": 40, "world__min": size, "world__max": size,
    }  # fmt: skip
    job = cluster.submit("ladder.py", job__args=arguments, **settings)
    status = cluster.wait_end(job)
    assert status["exact_reason"] == "updates differ between node-0 and node-1"
    assert not cluster.broken(job), cluster.report("blamed", job)
    unheard = len(cluster.unheard(job))
    assert status["recoveries"] <= unheard and status["lost_steps"] == 0
    assert status["quarantined"] == [] and not cluster.kinds(job, "state_chosen")
    worlds = cluster.kinds(job, "world_formed")
    assert all(len(world["members"]) == size for world in worlds)
    assert sum("all take the state of one" in world["reason"] for world in worlds) > 2
    stored = [event["step"] for event in cluster.kinds(job, "checkpoint_committed")]
    assert len([step for step in stored if 0 < step < 40]) > 2, cluster.report("not stored", job)
    assert status["digest_step"] == 40


def test_updates_that_agree_on_the_cpu_are_made_there(cluster: Cluster) -> None:
    """Also by who is started anew and takes the state. It comes to the bits of a job on nodes of
    one kind."""
    arguments = ["--trouble", "gpu", "--node", "node-1", "--pace-seconds", "0.05"]
    # Two of one kind that are up sooner would begin on their GPUs.
    settings: dict[str, Any] = {
        "recovery__verify_every": 5, "train__steps": 60, "world__min": 3,
    }  # fmt: skip
    job = cluster.submit("ladder.py", job__args=arguments, **settings)
    cluster.wait_step(job, 10)
    cluster.wait_for("rank 1", lambda: cluster.kill_trainer(job, 1))
    cluster.hurry(job)
    status = cluster.wait_end(job)
    assert (status["exact"], status["updates_on_cpu"]) == (True, True)
    (told,) = cluster.kinds(job, "updates_on_cpu")
    assert told["reason"].startswith("updates differ between node-0 and node-1, and have the same")
    assert not cluster.kinds(job, "state_chosen") and status["quarantined"] == []
    assert "divergence" not in {fault["fault"] for fault in cluster.faults(job)}
    shown = cluster.command("status", job)
    assert "updates     on the CPU: GPUs differ" in shown
    usual = cluster.submit("ladder.py", **settings)
    found = cluster.wait_end(usual)
    assert (found["exact"], found["updates_on_cpu"]) == (True, False)
    assert found["digest"] == status["digest"]
