"""Clusters that tests share: starting one, and compiling MLX's kernels on it, takes seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests import CancelJob, ShowStatus
from elasticd.errors import ElasticdError
from elasticd.types import JobId
from tests.integration.cluster import ENDED, Cluster, compile_kernels

ARENA_NODES = 4
HEAL_SECONDS = 30.0
UNDISTURBED_TRIES = 3


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warm cache of MLX's compiled kernels."""
    return compile_kernels(tmp_path_factory.mktemp("alone"))


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
def undisturbed(arena: Arena) -> Callable[[str], str]:
    """The final digest of a job of jobs/ in a world of one that nobody disturbs."""
    known: dict[str, str] = {}

    def digest(entrypoint: str) -> str:
        if entrypoint not in known:
            # A node that isn't heard for two seconds, since its disk is busy, is left out: a
            # recovery, too, and no fault of what is tested. This run is what others are measured
            # by, so it must be one in which there was none.
            for _ in range(UNDISTURBED_TRIES):
                cluster = arena.healed()
                job = cluster.submit(entrypoint, world__max=1)
                status = cluster.wait_end(job)
                if status["recoveries"] == 0:
                    break
            assert status["recoveries"] == 0, cluster.report("undisturbed?", job)
            cluster.check_ledger(job, status["steps"], cumulative=entrypoint == "high.py")
            known[entrypoint] = status["digest"]
        return known[entrypoint]

    return digest
