"""The queue of real daemons: a job that can't run, and one that is submitted twice."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from elasticd.archive import Archive
from elasticd.cli.submit import prepare
from elasticd.client.client import Client
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.jobs import ArchivePart, CancelJob, NameJob, SubmitJob, Submitted
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.settings.job import JobSpec
from elasticd.types import JobId
from tests.integration.alone import JOBS
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

CLIENTS, FILE_BYTES = 16, 16 << 20
"""Who submit at the same time, and what each sends."""
MORE_BYTES = 128 << 20
"""A daemon may grow by so much meanwhile; all that is sent is twice as much."""


def own(folder: Path, *settings: str, size: int = 0) -> tuple[JobSpec, Archive]:
    """A job of jobs/ with files that no other job has."""
    shutil.copytree(JOBS, folder)
    (folder / "more.bin").write_bytes(random.Random(0).randbytes(size + 16))
    return prepare(folder / "job.toml", settings)


def finishes(cluster: Cluster, job: str) -> None:
    cluster.wait_for(f"the end of {job}", lambda: cluster.status(job)["state"] == "finished")


def test_a_job_for_more_nodes_than_there_are_keeps_nobody_waiting(cluster: Cluster) -> None:
    job_file = str(JOBS / "job.toml")
    first = cluster.submit("high.py", recovery__spare="none", train__steps=3)
    done = cluster.run("submit", job_file, "--set", "world.min=9")
    big = done.stdout.strip()
    assert done.returncode == 0
    assert f"{big} can't run now: it needs 9 nodes and may run on" in done.stderr
    last = cluster.submit("high.py", recovery__spare="none", train__steps=3)
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
        with Client(cluster.home / node).open(request) as connection:
            connection.send(to_plain(ArchivePart(packed.data)))
            assert connection.answer(60.0)["id"] == named
    jobs = cluster.client.request(ShowStatus())["jobs"]
    assert [job["id"] for job in jobs if job["name"] == "once"] == [named]
    assert len(cluster.kinds(named, "job_submitted")) == 1
    finishes(cluster, named)


@pytest.mark.deep
def test_a_queued_jobs_files_survive_the_node_that_took_them(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    """It is queued behind another job, so nobody else has had a use for its files."""
    with make_cluster(tmp_path, 3) as cluster:
        first = cluster.submit("high.py", at="node-1", job__args=["--pace-seconds", "0.3"])
        cluster.wait_step(first, 2)
        job, packed = own(tmp_path / "own", "train.steps=3", "job.name=own")
        taken = Client(cluster.home / "node-0").queue(job, packed)
        assert taken.short == ""
        having = [n for n in cluster.nodes if _has(cluster, n, packed)]
        assert len(having) >= 2 and "node-0" in having

        cluster.kill_node("node-0")
        shutil.rmtree(cluster.home / "node-0")
        cluster.hurry(first)
        for each in (first, taken.id):
            finishes(cluster, each)


@pytest.mark.deep
def test_a_node_that_takes_no_files_is_named(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    """Its folder of archives is none any more. The job is queued, and runs."""
    with make_cluster(tmp_path, 2) as cluster:
        folder = cluster.home / "node-1" / "archives"
        shutil.rmtree(folder)
        folder.write_text("a file")
        job, packed = own(tmp_path / "own", "train.steps=3", "job.name=own", "world.max=1")
        taken = Client(cluster.home / "node-0").queue(job, packed)
        assert taken.short.startswith("its files are on node-0 only, not on 2 nodes (node-1: ")
        assert "Not a directory" in taken.short
        finishes(cluster, taken.id)


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="nothing else tells how large it ever was")
def test_a_daemon_does_not_grow_with_the_clients_that_submit(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        job, packed = own(tmp_path / "own", "world.min=9", size=FILE_BYTES)
        pid = cluster.processes("node-0")[0].pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): the peak begins anew
        before = psutil.Process(pid).memory_info().rss

        def submit(_: int) -> Submitted:
            return Client(cluster.home / "node-0").queue(job, packed)

        with ThreadPoolExecutor(CLIENTS) as pool:
            taken = [*pool.map(submit, range(CLIENTS))]
        assert len({each.id for each in taken}) == CLIENTS
        assert {each.short for each in taken} == {""}
        assert _largest_bytes(pid) - before < MORE_BYTES
        for each in taken:
            cluster.client.change(CancelJob(each.id))


def _has(cluster: Cluster, node: str, packed: Archive) -> bool:
    return (cluster.home / node / "archives" / f"{packed.digest}.tar").exists()


def _largest_bytes(pid: int) -> int:
    """What a process had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
