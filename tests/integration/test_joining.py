"""Machines become members of a cluster of real daemons by a token, while it trains."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.shell.storage import papers
from tests.integration.cluster import ELASTICCTL, Cluster
from tests.integration.test_digest import check
from tests.unit.shell.network.daemons import free_address

pytestmark = pytest.mark.process

SECONDS = 60
SLOW = ["--pace-seconds", "0.2"]


class Founded(Cluster):
    """One node that lets others in; ``size`` grows with those that join."""

    def on(self, node: str, *words: str) -> subprocess.CompletedProcess[str]:
        """``elasticctl`` with the home of a node."""
        return subprocess.run(
            [ELASTICCTL, "--home", self.home / node, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def token(self, *options: str) -> str:
        made = self.on("node-0", "cluster", "token", *options)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def join(self, node: str, token: str) -> subprocess.CompletedProcess[str]:
        return self.on(
            node, "cluster", "join", token, "--node-id", node, "--listen", free_address()
        )

    def start(self, node: str) -> None:
        self.size += 1
        self.restart_daemon(node)

    def whole(self) -> bool:
        return sorted(self.view()["members"]) == self.nodes


@pytest.fixture
def founded(tmp_path: Path, kernels: Path) -> Iterator[Founded]:
    made = Founded(tmp_path, 1, kernels)
    for node in ("node-1", "node-2"):
        shutil.copytree(kernels, made.home / node / "cache")
        (made.home / node).rename(tmp_path / node)
    with made as cluster:
        for node in ("node-1", "node-2"):
            (tmp_path / node).rename(cluster.home / node)
        yield cluster


def test_two_join_at_once_while_a_job_trains(
    founded: Founded, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    job = founded.submit("high.py", job__args=SLOW)
    founded.wait_step(job, 2)
    token = founded.token("--uses", "2")
    with ThreadPoolExecutor() as both:
        joined = list(both.map(lambda node: founded.join(node, token), ("node-1", "node-2")))
    assert [done.returncode for done in joined] == [0, 0], joined
    for node in ("node-1", "node-2"):
        founded.start(node)
    founded.wait_for("a view of three", founded.whole)
    founded.wait_for("three ranks", lambda: len(founded.status(job)["ranks"]) == 3)
    check(founded, job, "high.py", expected)


def test_a_token_is_spent_by_one_and_a_join_is_repeated_after_a_fault(founded: Founded) -> None:
    token = founded.token()
    founded.kill_daemon("node-0")
    failed = founded.join("node-1", token)
    assert failed.returncode == 1 and "could not join" in failed.stderr
    founded.restart_daemon("node-0")
    assert founded.join("node-1", token).returncode == 0
    # Its answer may have been lost: the papers were never written.
    shutil.rmtree(papers.folder_of(founded.home / "node-1"))
    taken = founded.join("node-2", token)
    assert taken.returncode == 1 and "the join token has been used" in taken.stderr
    again = founded.join("node-1", founded.token())
    assert again.returncode == 1 and "node-1" in again.stderr, "another key under a taken id"
    assert founded.join("node-2", founded.token()).returncode == 0
    founded.size += 1
    founded.restart_daemon("node-2")
    founded.size -= 1
    founded.wait_for("node-2", lambda: len(founded.view()["members"]) == 2)
