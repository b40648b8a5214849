"""Steps and scripts that kill every process that runs them, on real daemons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cluster import STEPS, Cluster

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


@pytest.mark.parametrize("arguments", [[], ["--break"]], ids=["told to leave", "break"])
def test_an_export_that_is_killed_is_made_again(
    cluster: Cluster, tmp_path: Path, arguments: list[str]
) -> None:
    job = cluster.submit("exports.py", job__args=arguments)
    status = cluster.wait_end(job)
    assert status["step"] == (5 if arguments else STEPS)
    assert killed(cluster, job) >= 1, cluster.report("no kill was told of", job)
    cluster.command("outputs", job, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "result.txt").read_text() == status["digest"]


@pytest.mark.deep
def test_an_export_that_is_always_killed_fails_the_job_and_blames_no_step(cluster: Cluster) -> None:
    job = cluster.submit("exports.py", job__args=["--always"])
    reason = cluster.wait_end(job, "failed")["reason"]
    assert "the script dies behind its last step, 5 times by now; " in reason
    assert "signal 9" in reason
