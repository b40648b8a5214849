"""A node whose home, or whose disk for checkpoints, goes away while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


def test_a_daemon_whose_home_goes_ends_and_makes_none_in_its_place(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 1) as cluster:
        job = cluster.submit("high.py", job__args=["--pace-seconds", "0.05"])
        cluster.wait_step(job, 3)
        home, away = cluster.home / "node-0", cluster.home / "away"
        processes = cluster.note()
        home.rename(away)
        cluster.wait_for("the daemon ends", lambda: not any(one.alive for one in processes))
        assert not home.exists(), list(home.rglob("*"))
        away.rename(home)
        said = (home / "daemon.log").read_text().partition("daemon stops")[2]
        assert "is not the folder any more in which the daemon began" in said, cluster.report(said)
        cluster.up()
        cluster.hurry(job)
        cluster.wait_end(job)
