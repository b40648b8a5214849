"""The queue of real daemons: a job that can't run, and one that is submitted twice."""

from __future__ import annotations

import pytest

from elasticd.cli.submit import prepare
from elasticd.client.client import Client
from elasticd.core.words.requests import NameJob, ShowStatus, SubmitJob
from elasticd.types import JobId
from tests.integration.cluster import JOBS, Cluster

pytestmark = pytest.mark.process


def finishes(cluster: Cluster, job: str) -> None:
    cluster.wait_for(f"the end of {job}", lambda: cluster.status(job)["state"] == "finished")


def test_a_job_for_more_nodes_than_there_are_keeps_nobody_waiting(cluster: Cluster) -> None:
    job_file = str(JOBS / "job.toml")
    first = cluster.submit("high.py", train__steps=3)
    done = cluster.run("submit", job_file, "--set", "world.min=9")
    big = done.stdout.strip()
    assert done.returncode == 0
    assert f"{big} can't run now: it needs 9 nodes and may run on" in done.stderr
    last = cluster.submit("high.py", train__steps=3)
    for job in (first, last):
        finishes(cluster, job)

    def waits_for_nodes() -> bool:
        found = cluster.status(big)
        return found["state"] == "parked" and "of at least 9 members" in found["reason"]

    cluster.wait_for("it to have its turn and no nodes", waits_for_nodes)
    cluster.command("cancel", big)


def test_a_job_that_is_submitted_again_on_another_node_is_one_job(cluster: Cluster) -> None:
    spec, packed = prepare(JOBS / "job.toml", ["train.steps=3", "job.name=once"])
    named = JobId(cluster.client.request(NameJob("once"))["id"])
    request = SubmitJob(spec.to_dict(), len(packed.data), packed.digest, named)
    for node in ("node-0", "node-1", "node-0"):
        assert Client(cluster.home / node)._submit(request, packed).id == named
    jobs = cluster.client.request(ShowStatus())["jobs"]
    assert [job["id"] for job in jobs if job["name"] == "once"] == [named]
    assert len(cluster.kinds(named, "job_submitted")) == 1
    finishes(cluster, named)
