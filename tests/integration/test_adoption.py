"""Daemons that are killed and started again take over their children: training never stops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.cluster import Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

RETURN_SECONDS = 60
"""A machine that runs tests is busy: how long a daemon takes to start is not the question here."""
SLOW = ["--pace-seconds", "0.25"]


def ranks(status: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {rank["node"]: (rank["pid"], rank["reducer_pid"]) for rank in status["ranks"]}


def trainers(status: dict[str, Any]) -> dict[str, int]:
    return {rank["node"]: rank["pid"] for rank in status["ranks"]}


def whole(cluster: Cluster, job: str, step: int) -> dict[str, Any] | None:
    """The status at that step; None while a daemon has not told which processes it has."""
    status = cluster.wait_whole(job, step)
    return status if all(rank["reducer_pid"] for rank in status["ranks"]) else None


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
            step = cluster.status(job)["step"] + 2
            now = cluster.wait_for(f"{node} has spoken", partial(whole, cluster, job, step))
            assert now["state"] == "running", cluster.report(f"{node}: another state", job)
            assert not cluster.broken(job), cluster.report(f"{node}: something broke", job)
            unheard = len(cluster.unheard(job))
            assert now["recoveries"] <= unheard, cluster.report(f"{node}: a recovery", job)
            if not unheard:
                same = trainers(now) == trainers(before)
                assert same, cluster.report(f"{node}: another one", job)
            if not unheard and not cluster.moves(job):
                assert ranks(now) == ranks(before), cluster.report(f"{node}: another ring", job)
        if not cluster.unheard(job):
            formed = cluster.kinds(job, "world_formed")
            again = len(formed) > 1 + cluster.moves(job)
            assert not again, cluster.report("a world formed again", job)
        check(cluster, job, "high.py", expected)


def test_a_restarted_daemon_sweeps_nothing_that_its_trainer_is_writing(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    made = make_cluster(tmp_path, 1)
    made.configure("node-0", return_seconds=RETURN_SECONDS)
    with made as cluster:
        alone = cluster.submit("high.py", world__max=1)
        expected = cluster.wait_end(alone)["digest"]
        job = cluster.submit("held.py", job__args=SLOW, checkpoint__every_steps=5)
        cluster.wait_whole(job, 1)
        cluster.wait_for("a checkpoint", lambda: cluster.kinds(job, "checkpoint_committed"))
        hold = cluster.home / "hold"
        hold.touch()
        store = cluster.home / "node-0" / "checkpoints" / job
        before = cluster.status(job)

        def writing() -> list[Path]:
            return sorted(store.glob("*.partial/shard-*.tmp"))

        (shard,) = cluster.wait_for("a shard that has no name yet", writing)
        written = shard.stat().st_ino
        (pids,) = ranks(before).values()
        temporary = [Path(psutil.Process(pid).environ().get("TMPDIR", "/tmp")) for pid in pids]
        dead = cluster.home / "node-0" / "cache" / "tmp" / "of-one-that-is-dead"
        dead.mkdir(parents=True)
        cluster.restart_daemon("node-0")
        cluster.wait_for("what a dead child had is gone", lambda: not dead.exists())
        assert all(folder.is_dir() for folder in temporary), cluster.report("swept", job)
        assert shard.exists() and shard.stat().st_ino == written, cluster.report("swept", job)
        hold.unlink()
        step = int(shard.parent.name.partition("-")[0])

        def committed() -> bool:
            made = cluster.kinds(job, "checkpoint_committed")
            return any(event["step"] == step for event in made)

        cluster.wait_for(f"the checkpoint of step {step}", committed)
        check(cluster, job, "high.py", expected)
        assert ranks(before) and cluster.status(job)["recoveries"] == 0
        assert cluster.faults(job) == [], cluster.report("a fault", job)
        refused = cluster.kinds(job, "checkpoint_refused")
        assert refused == [], cluster.report("refused", job)
