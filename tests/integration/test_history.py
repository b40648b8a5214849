"""What nodes keep of a job's losses and of what its steps are made of, through faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticd.types import STEP_PARTS
from tests.integration.cluster import Cluster
from tests.integration.keptcurves import wait_kept

pytestmark = pytest.mark.process


def test_the_curve_outlives_the_leader_and_the_job(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 3) as cluster:
        job = cluster.submit(
            "high.py", recovery__spare="none", job__args=["--pace-seconds", "0.06"]
        )

        def parts() -> list[dict[str, Any]] | None:
            ranks = cluster.status(job)["ranks"]
            return ranks if len(ranks) > 1 and all(each.get("seconds") for each in ranks) else None

        cluster.wait_step(job, 4)
        for rank in cluster.wait_for("it is told what a step is made of", parts):
            spent = rank["seconds"]
            assert tuple(spent) == STEP_PARTS and spent["data"] > 0.05, "its pace is in its data"
        shown = cluster.command("status", job, "--performance")
        assert "seconds a step" in shown and "WAITING" in shown.upper()
        kept = wait_kept(cluster, job)
        cluster.kill_node(cluster.view()["leader"])
        cluster.hurry(job)
        end = cluster.wait_end(job)
        out = tmp_path / "report.md"
        cluster.command("report", job, "--markdown", "--out", out)
        text = out.read_text()
        assert "as the daemon kept it" in text and "What a step was made of" in text
        for node in cluster.living():
            found = cluster.wait_for(
                f"{node} has heard of the end", partial(curve, cluster, node, end)
            )
            steps = [step for step, _ in found]
            assert steps == sorted(set(steps)) and steps[0] == kept[node][0], (steps, kept)
            assert found[-1][1] == pytest.approx(end["loss"])


def curve(cluster: Cluster, node: str, end: dict[str, Any]) -> list[tuple[int, float]] | None:
    """The losses as the node tells them, up to the last step."""
    told = cluster.command("monitor", end["id"], "--json", "--home", cluster.home / node)
    losses: list[tuple[int, float]] = json.loads(told)["losses"]
    return losses if losses and losses[-1][0] == end["steps"] else None
