"""A cluster of an earlier version is upgraded node by node, and back, while it trains."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.shell.storage import papers
from tests.integration.cluster import ENDED, Cluster
from tests.integration.silence import wait_all
from tests.integration.test_digest import check, check_bits

pytestmark = pytest.mark.process

EARLIER = "7cbc4f31be2be9f51fe66e3f9326b2c995d0857d"
"""The commit beside whose daemons the present ones must work."""
IN_THE_OPEN = "d7b4c7f3acee5c9bce23c57c3da6b3725e7f5c38"
"""One whose daemons encrypt nothing: all of its cluster are upgraded together."""
CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("elasticd", "recovery", "checkpoints", "launchd", "systemd-like")
"""What is installed of a tree."""
SLOW = ["--pace-seconds", "0.4"]
PACED = ["--pace-seconds", "0.2"]
RETURN_SECONDS = 60
"""A machine that runs tests is busy: how long a daemon takes to start is not the question here."""


class Mixed(Cluster):
    """A cluster whose daemons are started from an earlier tree while ``tree`` is set.

    Attributes:
        before: that tree.
    """

    by_command = True
    tree: Path | None = None
    before: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        chosen = {} if self.tree is None else {"PYTHONPATH": str(self.tree)}
        return {**super().environment, **chosen}

    def earlier(self) -> set[str]:
        """The nodes whose daemon was started from an earlier tree."""
        running = {node: psutil.Process(self.processes(node)[0].pid) for node in self.nodes}
        path = str(self.before)
        return {
            node for node, daemon in running.items() if daemon.environ().get("PYTHONPATH") == path
        }


@pytest.fixture(scope="module")
def tree_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the tree of a commit."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed: there is no earlier version to run")

    def make(commit: str) -> Path:
        archived = subprocess.run(
            [git, "-C", CHECKOUT, "archive", "--format=tar", commit],
            capture_output=True,
            check=False,
            timeout=60,
        )
        if archived.returncode:
            pytest.skip(
                f"this checkout's history does not have commit {commit[:7]} (a shallow clone?):"
                f" {archived.stderr.decode(errors='replace').strip()}"
            )
        folder = tmp_path_factory.mktemp("earlier")
        with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
            # Early releases of Python 3.11 have no filters; it is our own history.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder)
        return folder

    return make


@pytest.mark.long
def test_nodes_are_upgraded_one_by_one_and_back_while_a_job_trains(
    tree_of: Callable[[str], Path],
    kernels: Path,
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """Trainers and reducers of both versions form worlds, and daemons of each version take over
    processes of the other."""
    expected = undisturbed("high.py")
    made = Mixed(tmp_path, 3, kernels)
    made.tree = made.before = earlier = tree_of(EARLIER)
    for node in made.nodes:
        made.configure(node, return_seconds=RETURN_SECONDS)
    with made as cluster:
        assert cluster.earlier() == set(cluster.nodes)
        job = cluster.submit("high.py", job__args=SLOW)
        assert len(cluster.wait_whole(job, 2)["ranks"]) == 3

        cluster.tree = None
        _replace_daemon(cluster, "node-0", job)
        _replace_node(cluster, "node-1", job)
        assert cluster.earlier() == {"node-2"}

        cluster.tree = earlier
        _replace_daemon(cluster, "node-1", job)
        assert cluster.earlier() == {"node-1", "node-2"}

        cluster.tree = None
        _replace_daemon(cluster, "node-1", job)
        _replace_node(cluster, "node-2", job)
        _replace_node(cluster, "node-0", job)
        assert cluster.earlier() == set()
        check(cluster, job, "high.py", expected)


@pytest.mark.long
def test_an_upgrade_costs_no_job_a_node_for_how_builds_tell_of_its_samples(
    tree_of: Callable[[str], Path], kernels: Path, tmp_path: Path
) -> None:
    """Neither the job that trains, nor one whose turn comes while there are daemons of both builds,
    nor one that goes on once all are upgraded, and must be exact."""
    made = Mixed(tmp_path, 2, kernels)
    made.tree = made.before = tree_of(EARLIER)
    for node in made.nodes:
        made.configure(node, return_seconds=RETURN_SECONDS)
    with made as cluster:
        submit = partial(cluster.submit, "texts.py", train__steps=96, job__args=PACED)
        paused = submit(world__require_exact=True)
        wait_all(cluster, paused, 2, 2)
        cluster.command("pause", paused)
        trains = submit()
        wait_all(cluster, trains, 1, 2)
        queued = submit()

        cluster.tree = None
        _replace_node(cluster, "node-1", trains)
        assert cluster.status(queued)["state"] == "queued"
        cluster.hurry(trains)
        cluster.wait_end(trains)
        assert len(wait_all(cluster, queued, 1, 2)["ranks"]) == 2, cluster.report("few", queued)
        assert cluster.earlier() == {"node-0"}
        _replace_node(cluster, "node-0", queued)
        cluster.hurry(queued)
        cluster.wait_end(queued)

        cluster.command("resume", paused)
        cluster.hurry(paused)
        cluster.wait_end(paused)
        for job in (paused, trains, queued):
            assert cluster.status(job)["exact"] is True, cluster.report("not exact", job)
            assert not cluster.kinds(job, "node_unfit"), cluster.report("left out", job)


@pytest.mark.deep
@pytest.mark.long
def test_a_package_that_is_replaced_under_a_running_cluster_costs_no_bit(
    tree_of: Callable[[str], Path],
    kernels: Path,
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """As ``brew upgrade`` does: processes that an old daemon starts from then on are of the new
    version. They train beside it until it is restarted."""
    expected = undisturbed("high.py")
    made = Mixed(tmp_path, 2, kernels)
    made.tree = installed = tree_of(EARLIER)
    for node in made.nodes:
        made.configure(node, return_seconds=RETURN_SECONDS)
    with made as cluster:
        job = cluster.submit("high.py", job__args=SLOW)
        cluster.wait_whole(job, 2)
        installed.rename(tmp_path / "before")
        installed.mkdir()
        for name in PACKAGES:
            shutil.copytree(CHECKOUT / name, installed / name, symlinks=True)
        old = {one.pid for node in cluster.nodes for one in cluster.processes(node)}
        status = _until_new(cluster, job, "pid", old, cluster.kill_trainer)
        status = _until_new(cluster, job, "reducer_pid", old, cluster.kill_reducer)
        cluster.wait_step(job, status["step"] + 2)
        for node in cluster.nodes:
            _replace_daemon(cluster, node, job)
        check(cluster, job, "high.py", expected)


def _until_new(
    cluster: Cluster, job: str, key: str, old: set[int], kill: Callable[[str, int], int | None]
) -> dict[str, Any]:
    """Kill rank 1's, first those that were warm before, until a new one has its place."""

    def look() -> dict[str, Any] | None:
        status = cluster.status(job)
        found = [rank[key] for rank in status["ranks"] if rank["rank"] == 1]
        if status["state"] in ENDED or (status["state"] == "running" and set(found) - old - {0}):
            return status
        if set(found) & old:
            kill(job, 1)
        return None

    return cluster.wait_for(f"{job} with a new process", look)


@pytest.mark.deep
def test_a_cluster_that_spoke_in_the_open_goes_on_encrypted(
    tree_of: Callable[[str], Path],
    kernels: Path,
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """All of its daemons restart together, and are given certificates; nothing stored is lost."""
    expected = undisturbed("high.py")
    made = Mixed(tmp_path, 3, kernels)
    made.tree = tree_of(IN_THE_OPEN)
    with made as cluster:
        job = cluster.submit("high.py", job__args=SLOW)
        cluster.wait_for("a checkpoint", lambda: cluster.kinds(job, "checkpoint_committed") or None)
        assert not any(papers.is_member(cluster.home / node) for node in cluster.nodes)
        cluster.command("local", "down")

        cluster.tree = None
        cluster.up()
        members = [papers.read(cluster.home / node) for node in cluster.nodes]
        assert len({member.cluster_id for member in members}) == 1
        check_bits(cluster, job, "high.py", expected)


def _replace_daemon(cluster: Cluster, node: str, job: str) -> None:
    """Its processes go on, and no step is interrupted."""
    before = wait_all(cluster, job, 0, cluster.size)
    cluster.restart_daemon(node)
    after = cluster.wait_step(job, before["step"] + 1)
    assert after["state"] == before["state"], cluster.report(f"{node}: another state", job)
    other = cluster.kinds(job, "shares_moved") + cluster.unheard(job)
    if not any(event["generation"] >= before["generation"] for event in other):
        same = after["generation"] == before["generation"]
        assert same, cluster.report(f"{node}: another world", job)


def _replace_node(cluster: Cluster, node: str, job: str) -> None:
    """With all its processes; returns when all nodes have trained a step together."""
    gone = {one.pid for one in cluster.processes(node)}
    cluster.kill_node(node)
    cluster.restart_daemon(node)

    def whole() -> dict[str, Any] | None:
        status = cluster.status(job)
        pids = {rank["pid"] for rank in status["ranks"]}
        there = status["state"] == "running" and len(pids) == cluster.size
        return status if (there and not pids & gone) or status["state"] in ENDED else None

    status = cluster.wait_for(f"{job} on all nodes", whole)
    cluster.wait_whole(job, status["step"] + 1)
