"""A cluster of an earlier version is upgraded node by node, and back, while it trains."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd import __version__
from elasticd.client.client import Client
from elasticd.core.words.requests import ShowStatus
from tests.integration.cluster import ENDED, Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

EARLIER = "d7b4c7f3acee5c9bce23c57c3da6b3725e7f5c38"
"""The commit beside whose daemons the present ones must work."""
CHECKOUT = Path(__file__).parents[2]
SLOW = ["--pace-seconds", "0.3"]
RETURN_SECONDS = 60
"""A machine that runs tests is busy: how long a daemon takes to start is not the question here."""


class Mixed(Cluster):
    """A cluster whose daemons are started from an earlier tree while ``tree`` is set."""

    tree: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        chosen = {} if self.tree is None else {"PYTHONPATH": str(self.tree)}
        return {**super().environment, **chosen}

    def versions(self, asked: str) -> dict[str, str | None]:
        """Of elasticd, per node, as the daemon of ``asked`` tells it."""
        nodes = Client(self.home / asked).request(ShowStatus())["nodes"]
        return {node["id"]: node.get("version") for node in nodes}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the earlier commit."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed: there is no earlier version to run")
    archived = subprocess.run(
        [git, "-C", CHECKOUT, "archive", "--format=tar", EARLIER],
        capture_output=True,
        check=False,
        timeout=60,
    )
    if archived.returncode:
        pytest.skip(
            f"this checkout's history does not have commit {EARLIER[:7]} (a shallow clone?):"
            f" {archived.stderr.decode(errors='replace').strip()}"
        )
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_nodes_are_upgraded_one_by_one_and_back_while_a_job_trains(
    earlier: Path, kernels: Path, undisturbed: Callable[[str], str], tmp_path: Path
) -> None:
    """Trainers and reducers of both versions form worlds, and daemons of each version take over
    processes of the other."""
    expected = undisturbed("high.py")
    made = Mixed(tmp_path, 3, kernels)
    made.tree = earlier
    for node in made.nodes:
        made.configure(node, return_seconds=RETURN_SECONDS)
    with made as cluster:
        found = cluster.versions("node-0")
        assert found == dict.fromkeys(cluster.nodes), "daemons of the earlier commit say none"
        job = cluster.submit("high.py", job__args=SLOW)
        assert len(cluster.wait_whole(job, 2)["ranks"]) == 3

        cluster.tree = None
        _replace_daemon(cluster, "node-0", job)
        _replace_node(cluster, "node-1", job)
        now = {"node-0": __version__, "node-1": __version__, "node-2": None}
        assert cluster.versions("node-0") == now

        cluster.tree = earlier
        _replace_daemon(cluster, "node-1", job)
        assert cluster.versions("node-0") == {**now, "node-1": None}

        cluster.tree = None
        _replace_daemon(cluster, "node-1", job)
        _replace_node(cluster, "node-2", job)
        _replace_node(cluster, "node-0", job)
        assert cluster.versions("node-2") == dict.fromkeys(cluster.nodes, __version__)
        check(cluster, job, "high.py", expected)


def _replace_daemon(cluster: Cluster, node: str, job: str) -> None:
    """Its processes go on, and no step is interrupted."""
    before = cluster.status(job)
    cluster.restart_daemon(node)
    after = cluster.wait_step(job, before["step"] + 1)
    for key in ("generation", "state"):
        assert after[key] == before[key], cluster.report(f"{node}: another {key}", job)


def _replace_node(cluster: Cluster, node: str, job: str) -> None:
    """With all its processes; returns when all nodes have trained a step together."""
    cluster.kill_node(node)
    cluster.restart_daemon(node)

    def whole() -> dict[str, Any] | None:
        status = cluster.status(job)
        there = status["state"] == "running" and len(status["ranks"]) == cluster.size
        return status if there or status["state"] in ENDED else None

    status = cluster.wait_for(f"{job} on all nodes", whole)
    cluster.wait_whole(job, status["step"] + 1)
