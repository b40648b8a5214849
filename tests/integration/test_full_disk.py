"""A node whose disk for checkpoints is full: its part goes elsewhere, and training goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process


@contextmanager
def tiny_disk(folder: Path) -> Iterator[None]:
    """A disk with next to no room, mounted at ``folder``."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root on Linux")
    options = ["-t", "tmpfs", "-o", "size=4k,nr_inodes=64"]
    mounted = subprocess.run(
        ["mount", *options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_stops_neither_training_nor_checkpoints(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 3) as cluster:
        alone = cluster.submit("high.py", world__max=1, train__steps=20)
        digest = cluster.wait_end(alone)["digest"]
        folder = cluster.home / "node-1" / "checkpoints"
        folder.mkdir(exist_ok=True)
        with tiny_disk(folder):
            job = cluster.submit("high.py", train__steps=20, checkpoint__every_steps=5)
            assert cluster.wait_end(job)["digest"] == digest
            events, faults = cluster.events(job), cluster.faults(job)
        made = [e for e in events if e["kind"] == "checkpoint_committed"]
        assert made and made[-1]["step"] == 20
        assert all(e["replicas"] == 2 for e in made), "there are two other nodes"
        refused = [e for e in events if e["kind"] == "checkpoint_refused"]
        assert refused and {e["node"] for e in refused} == {"node-1"}
        assert any("No space left" in e["reason"] for e in refused)
        assert faults == []


@pytest.mark.deep
def test_the_last_checkpoint_is_written_once_there_is_room(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 1) as cluster:
        folder = cluster.home / "node-0" / "checkpoints"
        folder.mkdir(exist_ok=True)
        with tiny_disk(folder):
            job = cluster.submit("high.py", train__steps=10)

            def refused() -> bool:
                told = cluster.kinds(job, "checkpoint_refused")
                return bool(told) and told[-1]["step"] == 10

            cluster.wait_for("the last checkpoint is refused", refused)
            assert cluster.status(job)["state"] == "running"
        end = cluster.wait_end(job)
        made = cluster.kinds(job, "checkpoint_committed")
        assert [e["step"] for e in made] == [10] and end["digest_step"] == 10
