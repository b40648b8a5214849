"""A cluster of an earlier version is upgraded node by node, and back, while it trains."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd import __version__
from elasticd.client.client import Client
from elasticd.core.words.requests import ShowStatus
from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

EARLIER = "d7b4c7f3acee5c9bce23c57c3da6b3725e7f5c38"
"""The commit beside whose daemons the present ones must work."""
CHECKOUT = Path(__file__).parents[2]
SLOW = ["--pace-seconds", "0.5"]


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
    """Of one only the daemon is replaced, and takes over processes of the version before. Of the
    others all processes are, so that trainers and reducers of both versions form a world."""
    expected = undisturbed("high.py")
    made = Mixed(tmp_path, 3, kernels)
    made.tree = earlier
    with made as cluster:
        assert cluster.versions("node-0") == dict.fromkeys(cluster.nodes), (
            "these are no earlier ones"
        )
        job = cluster.submit("high.py", job__args=SLOW)
        before = cluster.wait_whole(job, 2)
        assert len(before["ranks"]) == 3

        cluster.tree = None
        cluster.restart_daemon("node-0")
        assert cluster.versions("node-0")["node-0"] == __version__
        _trains_on(cluster, job)
        cluster.kill_node("node-1")
        cluster.restart_daemon("node-1")
        _trains_on(cluster, job)
        assert cluster.versions("node-0") == {
            "node-0": __version__, "node-1": __version__, "node-2": None,
        }  # fmt: skip

        cluster.tree = earlier
        cluster.kill_node("node-0")
        cluster.restart_daemon("node-0")
        _trains_on(cluster, job)

        cluster.tree = None
        for node in ("node-0", "node-2"):
            cluster.kill_node(node)
            cluster.restart_daemon(node)
            _trains_on(cluster, job)
        assert cluster.versions("node-2") == dict.fromkeys(cluster.nodes, __version__)
        check(cluster, job, "high.py", expected)


def _trains_on(cluster: Cluster, job: str) -> None:
    """All three nodes train again, and a step further."""

    def look() -> bool:
        status = cluster.status(job)
        return len(status["ranks"]) == 3 and status["state"] == "running"

    cluster.wait_for(f"{job} on three nodes", look)
    cluster.wait_step(job, cluster.status(job)["step"] + 1)
