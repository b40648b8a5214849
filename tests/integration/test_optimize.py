"""``elasticctl optimize`` tries a real job, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.cluster import Cluster
from tests.unit.cli.test_commands import PROGRAM

pytestmark = pytest.mark.process

JOB = """\
# how it trains
[job]
name = "tiny"
entrypoint = "train.py"

[batch]
global = 8   # never changes
micro = 2    # samples at once

[train]
steps = 1000
"""
PLAIN = '[job]\nname = "tiny"\nentrypoint = "train.py"\nmode = "plain"\n'
SCRIPT = """\
import os, sys, time
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd

def loss(model, batch):
    {pause}
    return nn.losses.mse_loss(model(batch[0]), batch[1])

data = [(mx.ones(4), mx.ones(1))] * 64
run = elasticd.Run(model=nn.Linear(4, 1), optimizer=optim.Adam(0.01), loss=loss, data=data)
for step in run:
    with open(os.path.join({folder!r}, f"{{step.number}} of {{os.getpid()}}"), "w"): pass
raise SystemExit("nobody comes here")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("job", "seen", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "job" / "job.toml").write_text(JOB)
    return tmp_path


def command(folder: Path, pause: str, *words: str) -> Sequence[str]:
    script = SCRIPT.format(pause=pause, folder=str(folder / "seen"))
    (folder / "job" / "train.py").write_text(script)
    run = [*PROGRAM, "optimize", str(folder / "job" / "job.toml")]
    return [*run, "--seconds", "0.5", "--home", str(folder / "none"), *words]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder / "temporary")}


def optimized(folder: Path, pause: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        command(folder, pause, "--json", *words),
        capture_output=True,
        text=True,
        env=environment(folder),
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert not [*(folder / "temporary").iterdir()], "nothing of the trials is left"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def text_of(folder: Path) -> str:
    return (folder / "job" / "job.toml").read_text()


def test_what_was_faster_each_time_is_written_and_comments_stay(folder: Path) -> None:
    """Each grain takes 0.1 s, however many samples it has."""
    found = optimized(folder, "time.sleep(0.1)", "--write")
    assert found["suggestion"] == {"batch.micro": 8} and found["written"]
    assert [each["micro"] for each in found["trials"]][:3] == [2, 4, 8]
    assert found["gain"] > 0.03 and not any(each["failed"] for each in found["trials"])
    assert text_of(folder) == JOB.replace("micro = 2 ", "micro = 8 ")
    assert len(found["advice"]) == 3 and "recomputation" in found["advice"][0]
    assert sorted(path.name for path in (folder / "job").iterdir()) == ["job.toml", "train.py"]


def test_what_is_not_better_is_not_written(folder: Path) -> None:
    """A grain takes longer than its samples would apart; two are at once already few."""
    pause = "time.sleep(0.05 * (1 if len(batch[0]) == 2 else len(batch[0])))"
    found = optimized(folder, pause, "--write")
    assert found["suggestion"] is None and not found["written"]
    assert "batch.micro = 2 stays" in found["said"]
    assert text_of(folder) == JOB


def test_where_memory_runs_out_what_fits_is_suggested(folder: Path) -> None:
    pause = "\n    if len(batch[0]) > 1: raise MemoryError('Unable to allocate 8 GiB')"
    found = optimized(folder, pause)
    assert found["suggestion"] == {"batch.micro": 1} and not found["written"]
    assert "memory ran out" in found["trials"][0]["failed"]
    assert text_of(folder) == JOB


def test_a_script_that_fails_is_told_of(folder: Path) -> None:
    words = command(folder, "raise ValueError('no such row')", "--write")
    done = subprocess.run(words, capture_output=True, text=True, env=environment(folder))
    assert done.returncode == 1
    assert "the job can't be measured" in done.stderr and "no such row" in done.stderr
    assert "Traceback" not in done.stderr and text_of(folder) == JOB


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_leaves_nothing(folder: Path, number: int) -> None:
    words = command(folder, "time.sleep(0.2)", "--write")
    with subprocess.Popen(words, env=environment(folder), stderr=subprocess.PIPE) as process:
        seen = folder / "seen"
        until = time.monotonic() + 60
        while not [*seen.iterdir()]:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        trials = {int(path.name.split()[-1]) for path in seen.iterdir()}
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode not in (0, 2)
    assert not any(psutil.pid_exists(pid) for pid in trials)
    assert not [*(folder / "temporary").iterdir()] and text_of(folder) == JOB


@pytest.mark.deep
def test_the_node_with_the_least_memory_decides(
    make_cluster: Callable[[Path, int], Cluster], tmp_path: Path
) -> None:
    """A grain takes as long however many samples it has, but node-1 has no room for three."""
    script = SCRIPT.format(
        pause="time.sleep(0.1)\n    if len(batch[0]) > int(os.environ['ROOM']):"
        " raise MemoryError('Unable to allocate 8 GiB')",
        folder=str(tmp_path),
    )
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(script)
    named = JOB.replace("[batch]", 'pass_env = ["ROOM"]\n[batch]').replace(
        "micro = 2 ", "micro = 1 "
    )
    (job / "job.toml").write_text(named)
    with make_cluster(tmp_path / "cluster", 2) as cluster:
        for node, room in zip(cluster.nodes, ("8", "2"), strict=True):
            secrets = cluster.home / node / "secrets.env"
            secrets.write_text(f"ROOM={room}\n")
            secrets.chmod(0o600)
        words = ("optimize", job, "--seconds", "0.3", "--write", "--json", "--home", cluster.home)
        found = json.loads(cluster.run(*words).stdout)
        assert found["suggestion"] == {"batch.micro": 2} and found["written"]
        (full,) = [each for each in found["trials"] if each["micro"] == 4]
        assert full["failed"].startswith("node-1: memory ran out")
        assert [each["node"] for each in found["by_node"]] == cluster.nodes
        assert all(each["micro"] == 2 and each["seconds"] for each in found["by_node"])
        assert (job / "job.toml").read_text() == named.replace("micro = 1 ", "micro = 2 ")
        assert (
            cluster.run("jobs", "--json", "--home", cluster.home).stdout.strip() == '{"jobs": []}'
        )


@pytest.mark.parametrize("plain", [True, False])
def test_a_plain_job_and_a_missing_file_are_refused(folder: Path, plain: bool) -> None:
    words = [*command(folder, "pass")]
    if plain:
        (folder / "job" / "job.toml").write_text(PLAIN)
    else:
        (folder / "job" / "job.toml").unlink()
    done = subprocess.run(words, capture_output=True, text=True, env=environment(folder))
    told = "only its script knows" if plain else "job.toml"
    assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1
