"""Clusters that tests share: starting one, and compiling MLX's kernels on it, takes seconds."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.jobs import CancelJob
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import ElasticdError
from elasticd.types import JobId
from tests.integration.alone import ALONE, Alone
from tests.integration.cluster import ENDED, STEPS, Cluster
from tests.nursery import Nurseries

ARENA_NODES = 4
HEAL_SECONDS = 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests with clusters of their own come first: meanwhile the shared one would only cost
    time, and they are the ones that take long. The longest of all come before those: as the last
    one, it would let the other processes wait."""
    here = Path(__file__).parent
    ours = [at for at, item in enumerate(items) if here in item.path.parents]
    ordered = sorted((items[at] for at in ours), key=_turn)
    for at, item in zip(ours, ordered, strict=True):
        items[at] = item


def _turn(item: pytest.Item) -> tuple[bool, bool]:
    return "arena" in fixtures_of(item), item.get_closest_marker("long") is None


def fixtures_of(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


@pytest.fixture(scope="session", autouse=True)
def forked_clusters(nurseries: Nurseries) -> Iterator[None]:
    """Clusters' daemons and commands are forked. Set up first, so it ends last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "nurseries", nurseries)
        yield


@pytest.fixture(scope="session")
def jobs_alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Shared by the processes that run tests beside one another."""
    folder = tmp_path_factory.getbasetemp()
    return Alone((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "alone")


@pytest.fixture(scope="session")
def kernels(jobs_alone: Alone) -> Path:
    """A warm cache of MLX's compiled kernels."""
    jobs_alone.digest("low.py")
    return jobs_alone.kernels


@pytest.fixture(scope="session")
def make_cluster(kernels: Path) -> Callable[[Path, int], Cluster]:
    """Makes clusters with warm kernel caches, not started yet."""

    def make(folder: Path, nodes: int) -> Cluster:
        return Cluster(folder, nodes, kernels)

    return make


class Arena:
    """One cluster for many tests; replaced when a test has left it broken."""

    def __init__(self, make: Callable[[Path, int], Cluster], folders: Callable[[], Path]) -> None:
        self._make, self._folders = make, folders
        self._cluster: Cluster | None = None

    def healed(self) -> Cluster:
        """All nodes live and share a view, no job runs."""
        if self._cluster is not None:
            try:
                self._heal(self._cluster)
            except (AssertionError, ElasticdError):  # a daemon that doesn't answer, for one
                self._cluster.down()
                self._cluster = None
        if self._cluster is None:
            self._cluster = self._make(self._folders(), ARENA_NODES)
            self._cluster.up()
        return self._cluster

    def _heal(self, cluster: Cluster) -> None:
        if len(cluster.living()) < cluster.size:
            cluster.revive()
        jobs = cluster.client.request(ShowStatus())["jobs"]
        for job in jobs:
            if job["state"] not in ENDED:
                cluster.client.change(CancelJob(JobId(job["id"])))  # it may have ended meanwhile
        # Who lives may be outside after a link was cut: the next job would form without it.
        cluster.wait_for("a view of all", lambda: _share_a_view(cluster), HEAL_SECONDS)

    def close(self) -> None:
        """End it; nothing of it may be left."""
        if self._cluster is not None:
            left = self._cluster.down()
            assert not left, left


def _share_a_view(cluster: Cluster) -> bool:
    """As every node's own daemon says."""
    homes = [cluster.home / node for node in cluster.nodes]
    views = [Client(home).request(ShowStatus())["view"] for home in homes]
    return sorted(views[0]["members"]) == cluster.nodes and all(v == views[0] for v in views)


@pytest.fixture(scope="session")
def arena(
    make_cluster: Callable[[Path, int], Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Arena]:
    with contextlib.closing(Arena(make_cluster, lambda: tmp_path_factory.mktemp("arena"))) as made:
        yield made


@pytest.fixture
def cluster(arena: Arena) -> Cluster:
    """Four living nodes, without a running job."""
    return arena.healed()


@pytest.fixture(scope="session")
def undisturbed(jobs_alone: Alone) -> Callable[[str], str]:
    """The final digest of a job of jobs/ that runs alone, without any daemon."""

    def digest(entrypoint: str) -> str:
        found = jobs_alone.digest(entrypoint)
        cluster = Cluster(jobs_alone.folder(entrypoint), 0)
        cluster.check_ledger(ALONE, STEPS, cumulative=entrypoint == "high.py")
        return found

    return digest
