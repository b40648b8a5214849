"""A daemon's loop never waits for a disk, a program or a thread: no heartbeat would leave it."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.nodes import ShutDown
from elasticd.errors import NoDaemonError
from tests.integration import watchful
from tests.integration.alone import JOBS
from tests.integration.cluster import STEPS, WAIT_SECONDS, Cluster

pytestmark = pytest.mark.process


def test_the_loop_waits_for_nothing(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster(tmp_path, 2)
    with cluster:
        homes = [cluster.home / node for node in cluster.nodes]
        cluster.program = [sys.executable, watchful.__file__]
        for node in cluster.nodes:
            cluster.restart_daemon(node)
        written = cluster.submit("writes.py", train__steps=10)
        cluster.wait_end(written)
        folder = tmp_path / "job"
        shutil.copytree(JOBS, folder)
        (folder / "job.toml").write_text(
            (JOBS / "job.toml").read_text().replace(f"steps = {STEPS}", "steps = 4")
        )
        folder.rename(homes[0] / "jobs" / "mine")
        answer = homes[0] / "jobs" / "mine.submitted"
        cluster.wait_for("the job in the folder is taken", answer.exists)
        cluster.wait_end(answer.read_text().strip())
        refused = homes[0] / "jobs" / "bad.toml"
        (tmp_path / "bad.toml").write_text("no job")
        (tmp_path / "bad.toml").rename(refused)
        cluster.wait_for("it is refused", refused.with_suffix(".refused").exists)
        cluster.command("disk")
        cluster.command("checkpoints", "list", written)
        cluster.command("forget", written)
        daemons = [cluster.processes(node)[0] for node in cluster.nodes]
        for home in homes:
            with contextlib.suppress(NoDaemonError):  # it may end before it has answered
                Client(home, WAIT_SECONDS).request(ShutDown())
        # Only one that ends by itself says what it has waited for.
        cluster.wait_for("their ends", lambda: not any(one.alive for one in daemons))
    found = {home.name: json.loads((home / watchful.FILE_NAME).read_text()) for home in homes}
    assert found == {home.name: {} for home in homes}
