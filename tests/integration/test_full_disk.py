"""A node whose disk for checkpoints is full: its part goes elsewhere, and training goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.cluster import POLL_SECONDS, WAIT_SECONDS, Cluster
from tests.tinydisk import tiny_disk

pytestmark = pytest.mark.process


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
            events, broken = cluster.events(job), cluster.broken(job)
            unheard = cluster.unheard(job)
        made = [e for e in events if e["kind"] == "checkpoint_committed"]
        assert made and made[-1]["step"] == 20
        assert unheard or all(e["replicas"] == 2 for e in made), "there are two other nodes"
        refused = [e for e in events if e["kind"] == "checkpoint_refused"]
        assert refused and {e["node"] for e in refused} == {"node-1"}
        assert any("No space left" in e["reason"] for e in refused)
        assert broken == []


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


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """No room is left on the disk of ``folder``."""
    ballast = folder / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 4096, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size):
                        pass
        yield
    finally:
        ballast.unlink(missing_ok=True)


@pytest.mark.deep
def test_a_home_without_room_names_the_path_and_loses_nothing(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(tmp_path, 1)
    home = cluster.home / "node-0"
    home.mkdir(parents=True)
    # Where not even an event can be written a daemon ends, and its service tries again.
    with tiny_disk(home, "64m", 4096), cluster:
        alone = cluster.wait_end(cluster.submit("high.py", checkpoint__every_steps=3))
        slow = ["--pace-seconds", "0.05"]
        job = cluster.submit("high.py", job__args=slow, checkpoint__every_steps=3)
        cluster.wait_step(job, 7)
        cluster.wait_for("a checkpoint", lambda: cluster.kinds(job, "checkpoint_committed"))
        made = [event["step"] for event in cluster.kinds(job, "checkpoint_committed")]
        with filled(home):
            deadline = time.monotonic() + WAIT_SECONDS
            while cluster.living():
                assert time.monotonic() < deadline, cluster.report("it goes on", job)
                time.sleep(POLL_SECONDS)
            told = cluster.run("doctor")
            assert told.returncode == 1, told.stdout
            assert "its disk refused" in told.stdout and "No space left" in told.stdout
            assert "It still can't be written" in told.stdout, told.stdout
        told = cluster.run("doctor")
        assert told.returncode == 1 and "It can be written again" in told.stdout, told.stdout
        assert f"elasticctl local up --home {cluster.home}" in told.stdout
        cluster.up()
        assert cluster.run("doctor").returncode == 0
        cluster.hurry(job)
        end = cluster.wait_end(job)
        assert end["digest"] == alone["digest"]
        kept = [event["step"] for event in cluster.kinds(job, "checkpoint_committed")]
        assert kept[: len(made)] == made
        refused = cluster.kinds(job, "checkpoint_refused")
        assert refused, cluster.report("nobody was told", job)
        assert all(str(home / "checkpoints" / job) in e["reason"] for e in refused)
        assert all("No space left" in e["reason"] for e in refused)
        cluster.check_ledger(job, end["steps"], cumulative=True)
        cluster.command("checkpoints", "verify", job)
