"""Nothing is left behind, however the daemons end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

Make = Callable[[Path, int], Cluster]
SLOW = ["--pace-seconds", "0.06"]
GRACE_SECONDS = 8


def test_down_and_sigterm_and_the_dead_man(make_cluster: Make, tmp_path: Path) -> None:
    """One cluster, ended in each way in turn; the job goes on each time that it is back."""
    made = make_cluster(tmp_path, 2)
    for node in made.nodes:
        made.configure(node, grace_seconds=GRACE_SECONDS)
    with made as cluster:
        job = cluster.submit("high.py", job__args=SLOW)
        cluster.wait_whole(job, 4)
        assert cluster.down() == []

        cluster.up()
        cluster.wait_whole(job, 8)
        daemons = [cluster.processes(node)[0] for node in cluster.nodes]
        for daemon in daemons:
            os.kill(daemon.pid, signal.SIGTERM)
        cluster.wait_for("the daemons' end", lambda: not any(one.alive for one in daemons))
        assert cluster.leftovers() == []

        cluster.up()
        cluster.wait_whole(job, 12)
        cluster.note()
        for node in cluster.nodes:
            cluster.kill_daemon(node)
        assert any(one.alive for one in cluster.seen), "nothing was orphaned"
        cluster.wait_for("the orphans' end", lambda: not cluster.leftovers())

        cluster.hurry(job)
        cluster.up()
        cluster.wait_end(job)

        def told() -> dict[str, Any] | None:
            """The event with the time of the end may come after the record of it."""
            status = cluster.status(job)
            return status if status["ended"] is not None else None

        ended = cluster.wait_for("the time of its end", told)
        assert cluster.down() == []

        cluster.up()
        again = cluster.status(job)
        for key in ended.keys() - {"steps_per_second"}:
            assert again[key] == ended[key], f"{key} is forgotten"
        assert again["loss"] is not None and again["recoveries"] > 0


@pytest.mark.deep
def test_a_killed_daemon_comes_back_and_takes_part(make_cluster: Make, tmp_path: Path) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        job = cluster.submit("high.py", job__args=SLOW)
        cluster.wait_whole(job, 4)
        orphans = cluster.processes("node-1")[1:]
        cluster.kill_daemon("node-1")
        cluster.revive()
        kept = [one for one in orphans if one.role == "trainer" and one.alive]
        assert kept and set(kept) <= set(cluster.processes("node-1")), "it adopted nothing"
        cluster.hurry(job)
        cluster.wait_end(job)
