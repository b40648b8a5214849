"""Clusters that tests share: starting one, and compiling MLX's kernels on it, takes seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticd.core.words.requests import CancelJob, ShowStatus
from elasticd.types import JobId
from tests.integration.cluster import ENDED, Cluster, compile_kernels

ARENA_NODES = 4


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
        """All nodes live, no job runs."""
        if self._cluster is not None:
            try:
                self._heal(self._cluster)
            except AssertionError:
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

    def close(self) -> None:
        """End it; nothing of it may be left."""
        if self._cluster is not None:
            left = self._cluster.down()
            assert not left, left


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
            cluster = arena.healed()
            job = cluster.submit(entrypoint, world__max=1)
            status = cluster.wait_end(job)
            assert status["recoveries"] == 0, cluster.report("undisturbed?", job)
            cluster.check_ledger(job, status["steps"], cumulative=entrypoint == "high.py")
            known[entrypoint] = status["digest"]
        return known[entrypoint]

    return digest
