"""``partition = "strict"`` with real daemons: those who are too few wait, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process


def test_one_of_three_waits_until_another_is_back(
    make_cluster: Callable[[Path, int], Cluster],
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    expected = undisturbed("high.py")
    made = make_cluster(tmp_path, 3)
    for node in made.nodes:
        made.configure(node, partition="strict")
    with made as cluster:
        job = cluster.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.1"])
        cluster.wait_whole(job, 5)
        leader = cluster.view()["leader"]
        last = next(node for node in cluster.nodes if node != leader)
        cluster.kill_nodes([node for node in cluster.nodes if node != last])
        cluster.wait_for(
            f"{last} to wait", lambda: cluster.status(job)["state"] == "parked" or None
        )
        waiting = cluster.wait_for("its event", lambda: cluster.kinds(job, "job_parked", last))
        assert waiting[-1]["reason"], cluster.report("no reason", job)
        cluster.revive()
        check(cluster, job, "high.py", expected)
        kinds = {e["kind"] for e in cluster.events(job)}
        assert "lineages_met" not in kinds, cluster.report("two lineages", job)
