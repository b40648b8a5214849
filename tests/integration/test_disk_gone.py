"""A node whose home, or whose disk for checkpoints, goes away while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.checkpoints.apart import SIGN
from elasticd.shell.storage.homefolders import SIGNED
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


def test_no_checkpoint_is_said_to_be_safe_below_a_disk_that_went_away(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    """Its mount point is there, and takes all that is written."""
    disk, away = tmp_path / "disk", tmp_path / "away"
    cluster = make_cluster(tmp_path, 1)
    folder = cluster.home / "node-0/checkpoints"
    disk.mkdir()
    folder.parent.mkdir(parents=True)
    folder.symlink_to(disk)
    for name in SIGNED:
        if name != folder.name:
            (tmp_path / name).mkdir()
            folder.with_name(name).symlink_to(tmp_path / name)
    with cluster:
        slow = ["--pace-seconds", "0.05"]
        job = cluster.submit("high.py", job__args=slow, checkpoint__every_steps=5)
        cluster.wait_for("a checkpoint", lambda: cluster.kinds(job, "checkpoint_committed"))
        disk.rename(away)
        disk.mkdir()
        refused = cluster.wait_for("it is told", lambda: cluster.kinds(job, "checkpoint_refused"))
        assert str(folder) in refused[0]["reason"] and "Mount that disk" in refused[0]["reason"]
        told = cluster.run("doctor")
        assert told.returncode == 1 and "Mount that disk" in told.stdout, told.stdout
        made = [event["step"] for event in cluster.kinds(job, "checkpoint_committed")]
        assert max(made) < refused[0]["step"] and list(disk.iterdir()) == []
        disk.rmdir()
        away.rename(disk)
        cluster.hurry(job)
        end = cluster.wait_end(job)
        assert cluster.kinds(job, "checkpoint_committed")[-1]["step"] == end["steps"]
        assert cluster.run("doctor").returncode == 0
    with cluster:
        assert cluster.status(job)["state"] == "finished"
        assert all((folder.with_name(name) / SIGN).is_file() for name in SIGNED)
