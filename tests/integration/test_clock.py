"""A node whose clocks jump: the calendar means nothing, and who slept steps down first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from tests.integration import clocked
from tests.integration.cluster import ELASTICCTL, Cluster
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

DAY = 86_400.0


@pytest.mark.deep
def test_jumps_of_the_leaders_clocks(
    make_cluster: Callable[[Path, int], Cluster],
    undisturbed: Callable[[str], str],
    tmp_path: Path,
) -> None:
    expected = undisturbed("high.py")

    def set_clock(node: str, monotonic: float, wall: float) -> None:
        file = cluster.home / node / clocked.OFFSETS
        beside = file.with_suffix(".partial")
        beside.write_text(json.dumps({"monotonic": monotonic, "wall": wall}))
        beside.replace(file)

    with make_cluster(tmp_path, 3) as cluster:
        cluster.program = [sys.executable, clocked.__file__]
        for node in cluster.nodes:
            set_clock(node, 0.0, 0.0)
            cluster.restart_daemon(node)
        cluster.wait_for("a view of all", lambda: len(cluster.view()["members"]) == 3)
        job = cluster.submit(
            "high.py", recovery__spare="none", job__args=["--pace-seconds", "0.125"]
        )
        cluster.wait_whole(job, 5)
        leader = cluster.wait_for("a leader", lambda: cluster.view()["leader"])

        for wall in (-DAY, 365 * DAY):
            set_clock(leader, 0.0, wall)
            step = cluster.status(job)["step"]
            cluster.wait_step(job, step + 3)
            assert not cluster.broken(job), cluster.report(f"{wall} s", job)

        epoch = cluster.view()["epoch"]
        set_clock(leader, 60.0, 0.0)  # as if it had slept for a minute
        cluster.wait_for(
            "another view of all",
            lambda: cluster.view()["epoch"] > epoch and len(cluster.view()["members"]) == 3,
        )
        check(cluster, job, "high.py", expected)


def stepped(seconds: float, folder: Path, *command: str | Path) -> Sequence[str | Path]:
    """``command`` as if the wall clock had been set since all that runs was started. Linux tells
    when it was booted by the wall clock of now, and so when processes were started: it does so to
    this command alone, in a mount namespace."""
    stat = folder / "stat"
    lines = [line.split(" ", 1) for line in Path("/proc/stat").read_text().splitlines()]
    moved = [[k, str(int(int(v) + seconds))] if k == "btime" else [k, v] for k, v in lines]
    stat.write_text("".join(f"{' '.join(line)}\n" for line in moved))
    script = 'mount --bind "$1" /proc/stat && shift && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", stat, *command]


@pytest.mark.parametrize("seconds", [-DAY, 3.0, 365 * DAY])
def test_a_step_of_the_wall_clock_is_no_daemons_death(
    cluster: Cluster, tmp_path: Path, seconds: float
) -> None:
    if sys.platform != "linux":
        pytest.skip("the boot time of a Mac is in no file")
    probe = [sys.executable, "-c", "import psutil; print(psutil.boot_time())"]
    told = subprocess.run(
        stepped(seconds, tmp_path, *probe), capture_output=True, text=True, check=False
    )
    if told.returncode:
        pytest.skip(f"no mount namespaces here: {told.stderr.strip()}")
    here = subprocess.run(probe, capture_output=True, text=True, check=True).stdout
    assert abs(float(told.stdout) - float(here) - seconds) < 2.0, "the step is seen"

    def pids() -> dict[str, int]:
        nodes = cluster.client.request(ShowStatus())["nodes"]
        return {node["id"]: node["pid"] for node in nodes}

    before = pids()
    up = subprocess.run(
        stepped(seconds, tmp_path, ELASTICCTL, "--home", cluster.home, "local", "up"),
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert up.returncode == 0, cluster.report(up.stderr)
    assert pids() == before and cluster.living() == cluster.nodes
