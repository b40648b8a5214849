"""What the nursery forks is what a Python of its own would be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.cli.submit import prepare
from tests import cradle
from tests.integration.cluster import ELASTICCTL, WAIT_SECONDS, Cluster
from tests.nursery import COMMAND, DAEMON, NURSERIES, Forked, Nurseries

pytestmark = pytest.mark.process

CRADLE = cradle.__file__
MODULES = {"trainer": "elasticd.train", "reducer": "elasticd.reducer"}


@pytest.fixture
def forking(nurseries: Nurseries) -> Nurseries:
    if not nurseries.can_start(os.environ):
        pytest.skip("no fork without exec here")
    return nurseries


def fork(nurseries: Nurseries, folder: Path, *words: str | Path) -> Forked:
    with (folder / "log").open("wb") as log:
        return nurseries.start(DAEMON, words, folder, (log, log), os.environ)


@pytest.mark.parametrize(
    "words", [["--version"], ["status"], ["status", "--json"], ["status", "a", "b"], ["logs", "-h"]]
)
def test_a_command_says_what_it_says_by_itself(
    forking: Nurseries, tmp_path: Path, words: list[str]
) -> None:
    given = ["--home", str(tmp_path), *words]
    forked = forking.run(COMMAND, given, os.environ, WAIT_SECONDS)
    own = subprocess.run([ELASTICCTL, *given], capture_output=True, text=True, check=False)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        own.returncode, own.stdout, own.stderr
    )  # fmt: skip


def test_who_runs_several_at_once_hears_of_each_its_own(forking: Nurseries) -> None:
    """However often threads take turns."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def run(word: str) -> tuple[int, bool]:
        done = forking.run(COMMAND, [word], os.environ, WAIT_SECONDS)
        return done.returncode, word in done.stderr

    words = [f"nothing-{number}" for number in range(24)]
    try:
        with ThreadPoolExecutor(6) as aside:
            assert list(aside.map(run, words)) == [(2, True)] * len(words)
    finally:
        sys.setswitchinterval(before)


def test_a_daemon_ends_with_its_own_code_and_words(forking: Nurseries, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "elasticd.toml").write_text("nothing = 1\n")
    daemon = fork(forking, tmp_path, "run", "--home", tmp_path / "home")
    assert daemon.wait(WAIT_SECONDS) == 2
    assert "elasticd.toml" in (tmp_path / "log").read_text()


def test_a_killed_daemon_has_died_of_the_signal(forking: Nurseries, tmp_path: Path) -> None:
    home = tmp_path / "home"
    daemon = fork(forking, tmp_path, "run", "--home", home)
    assert daemon.runs
    daemon.kill()
    assert daemon.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert not daemon.runs


def test_what_python_reads_at_its_start_is_not_forked(forking: Nurseries) -> None:
    assert not forking.can_start({**os.environ, "PYTHONHASHSEED": "1"})
    assert forking.can_start({**os.environ, "TMPDIR": "/tmp"})


def test_forked_daemons_are_processes_of_their_own(
    make_cluster: Callable[[Path, int], Cluster], forking: Nurseries, tmp_path: Path
) -> None:
    with make_cluster(tmp_path, 2) as cluster:
        daemons = [psutil.Process(cluster.processes(node)[0].pid) for node in cluster.nodes]
        nurseries = {daemon.ppid() for daemon in daemons}
        assert len(nurseries) == NURSERIES[DAEMON], "all of them would have the same seed"
        for daemon, node in zip(daemons, cluster.nodes, strict=True):
            assert os.getsid(daemon.pid) == daemon.pid
            assert Path(daemon.cwd()) == cluster.home / node
            held = {os.path.realpath(f"/proc/{daemon.pid}/fd/{fd}") for fd in (1, 2)}
            assert held == {str(cluster.home / node / "daemon.log")}


SCRIPT = """
import sys
there = sorted(sys.modules)
import os
import pathlib
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import elasticd

shown = pathlib.Path(os.environ["SHOWN"])
shown.with_name(f"{shown.name}-{os.getpid()}").write_text(" ".join(there))
data = [(mx.ones((2,)), mx.ones((1,))) for _ in range(8)]
run = elasticd.Run(
    model=nn.Linear(2, 1), optimizer=optim.SGD(0.01), data=data,
    loss=lambda model, batch: nn.losses.mse_loss(model(batch[0]), batch[1]),
)
for step in run:
    while not pathlib.Path(os.environ["SHOWN"]).exists():
        pass
"""
JOB = """
[job]
name = "shown"
entrypoint = "train.py"
[job.env]
SHOWN = "{shown}"
{more}
[batch]
global = 4
micro = 4
[train]
steps = 1
"""


def is_own(entry: dict[str, Any], daemon: psutil.Process) -> None:
    """Raises psutil.NoSuchProcess."""
    child = psutil.Process(entry["pid"])
    seen = child.ppid(), os.getsid(child.pid), child.cmdline(), child.environ()
    assert seen[:2] == (daemon.pid, child.pid)
    assert [word for word in seen[2] if word] == [sys.executable, "-m", MODULES[entry["role"]]]
    assert json.loads(seen[3]["ELASTICD_CHILD"])["nonce"] == entry["nonce"]


def test_forked_children_are_a_daemons_own(
    make_cluster: Callable[[Path, int], Cluster], forking: Nurseries, tmp_path: Path
) -> None:
    """And have loaded what they load by themselves, which one does whose environment MLX reads."""
    loaded, roles = [], set[str]()
    with make_cluster(tmp_path, 1) as cluster:
        (node,) = cluster.nodes
        daemon = psutil.Process(cluster.processes(node)[0].pid)
        for name, more in (("forked", ""), ("own", 'MLX_NOTHING = "1"')):
            (tmp_path / name).mkdir()
            (tmp_path / name / "train.py").write_text(SCRIPT)
            shown = tmp_path / f"of-{name}"
            (tmp_path / name / "job.toml").write_text(JOB.format(shown=shown, more=more))
            job = cluster.client.submit(*prepare(tmp_path / name / "job.toml", []))
            (rank,) = cluster.wait_whole(job, 0)["ranks"]
            modules = shown.with_name(f"{shown.name}-{rank['pid']}")
            cluster.wait_for("what it has loaded", modules.exists)
            for entry in json.loads((cluster.home / node / "children.json").read_bytes()):
                with contextlib.suppress(
                    psutil.NoSuchProcess, ProcessLookupError
                ):  # of the job before
                    is_own(entry, daemon)
                    roles.add(entry["role"])
            loaded.append(set(modules.read_text().split()))
            shown.touch()
            cluster.wait_end(job)
        cradles = [each for each in daemon.children() if CRADLE in each.cmdline()]
        assert len(cradles) == 2, cluster.report("not forked")
    assert roles == MODULES.keys()
    assert loaded[0] == loaded[1]
