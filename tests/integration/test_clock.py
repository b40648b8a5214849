"""A node whose clocks jump: the calendar means nothing, and who slept steps down first."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration import clocked
from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

DAY = 86_400.0


@pytest.mark.deep
def test_jumps_of_the_leaders_clocks(
    make_cluster: Callable[[Path, int], Cluster],
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    expected = undisturbed("high.py")

    def set_clock(node: str, monotonic: float, wall: float) -> None:
        file = cluster.home / node / clocked.OFFSETS
        beside = file.with_suffix(".partial")
        beside.write_text(json.dumps({"monotonic": monotonic, "wall": wall}))
        beside.replace(file)

    with make_cluster(tmp_path, 3) as cluster:
        cluster.program = [sys.executable, clocked.__file__]
        for node in cluster.nodes:
            set_clock(node, 0.0, 0.0)
            cluster.restart_daemon(node)
        cluster.wait_for("a view of all", lambda: len(cluster.view()["members"]) == 3)
        job = cluster.submit("high.py", job__args=["--pace-seconds", "0.05"])
        before = cluster.wait_whole(job, 5)
        leader = cluster.view()["leader"]

        for wall in (-DAY, 365 * DAY):
            set_clock(leader, 0.0, wall)
            step = cluster.status(job)["step"]
            now = cluster.wait_step(job, step + 3)
            assert now["generation"] == before["generation"], cluster.report(f"{wall} s", job)

        epoch = cluster.view()["epoch"]
        set_clock(leader, 60.0, 0.0)  # as if it had slept for a minute
        cluster.wait_for(
            "another view of all",
            lambda: cluster.view()["epoch"] > epoch and len(cluster.view()["members"]) == 3,
        )
        check(cluster, job, "high.py", expected)
