"""Daemons that are killed and started again take over their children: training never stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

RETURN_SECONDS = 60
"""A machine that runs tests is busy: how long a daemon takes to start is not the question here."""
SLOW = ["--pace-seconds", "0.2"]


def ranks(status: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {rank["node"]: (rank["pid"], rank["reducer_pid"]) for rank in status["ranks"]}


def test_rolling_restarts_interrupt_no_step(
    make_cluster: Callable[[Path, int], Cluster],
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    expected = undisturbed("high.py")
    made = make_cluster(tmp_path, 3)
    for node in made.nodes:
        made.configure(node, return_seconds=RETURN_SECONDS)
    with made as cluster:
        job = cluster.submit("high.py", job__args=SLOW)
        before = cluster.wait_whole(job, 3)
        assert len(before["ranks"]) == 3
        for node in cluster.nodes:
            cluster.restart_daemon(node)
            step = cluster.status(job)["step"]
            now = cluster.wait_step(job, step + 2)
            for key in ("generation", "recoveries", "state"):
                assert now[key] == before[key], cluster.report(f"{node}: another {key}", job)
            assert ranks(now) == ranks(before), cluster.report(f"{node}: other processes", job)
        formed = cluster.kinds(job, "world_formed")
        assert len(formed) == 1, cluster.report("a world was formed again", job)
        check(cluster, job, "high.py", expected)
