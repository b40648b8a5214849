"""Steps and scripts that kill every process that runs them, on real daemons."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


def killed(cluster: Cluster, job: str) -> int:
    """How many trainers were killed at the step, as the events tell."""
    found = cluster.kinds(job, "fault_detected")
    return sum(any("signal 9" in text for text in fault["evidence"]) for fault in found)


def test_a_step_that_kills_on_every_node_fails_the_job_with_its_evidence(cluster: Cluster) -> None:
    arguments = ["--trouble", "killed", "--at", "12"]
    job = cluster.submit("ladder.py", job__args=arguments)
    reason = cluster.wait_end(job, "failed")["reason"]
    assert "step 12 ends every trainer that computes it: signal 9 on" in reason
    assert "alone and with memory to spare" in reason and "samples" in reason
    assert killed(cluster, job) >= 7 and cluster.kinds(job, "memory_relieved")


@pytest.mark.deep
def test_a_step_that_kills_on_one_node_alone_is_done_by_the_others(cluster: Cluster) -> None:
    arguments = ["--trouble", "killed-here", "--node", "node-1", "--at", "12"]
    job = cluster.submit("ladder.py", job__args=arguments)
    cluster.wait_end(job)
    assert killed(cluster, job) >= 1


def test_a_script_that_is_killed_before_its_run_names_the_signal(cluster: Cluster) -> None:
    job = cluster.submit("bad_killed.py")
    reason = cluster.wait_end(job, "failed")["reason"]
    assert "times before Run(...), the last time: trainer ended with signal 9" in reason
