"""What operators ask of real jobs: pause and resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

SLOW = ["--pace-seconds", "0.03"]


def test_a_paused_job_goes_on_with_the_same_bits(
    cluster: Cluster, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOW)
    before = cluster.wait_whole(job, 7)
    pids = {rank["pid"] for rank in before["ranks"]}
    assert cluster.command("pause", job) == f"{job} paused\n"
    assert cluster.command("pause", job) == f"{job} paused\n", "again is no error"

    def rests() -> dict[str, Any] | None:
        status = cluster.status(job)
        gone = not any(one.alive for one in cluster.seen if one.pid in pids)
        return status if status["state"] == "paused" and gone else None

    status = cluster.wait_for("rest", rests)
    assert 7 <= status["step"] < 60 and status["ranks"] == []
    assert cluster.command("resume", job).startswith(f"{job} ")
    check(cluster, job, "high.py", expected)
    assert cluster.status(job)["recoveries"] == 0, cluster.report("recoveries", job)
    assert cluster.run("pause", job).returncode == 1, "it has ended"
    assert cluster.run("pause", "no-such-job").returncode == 1
