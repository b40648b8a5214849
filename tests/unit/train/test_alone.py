"""The same script, by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

JOB = """
[job]
name = "alone"
entrypoint = "train.py"
[batch]
global = 6
micro = 2
[train]
steps = 3
seed = 1
"""
SCRIPT = """
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd

mx.random.seed(0)
model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.5), nn.Linear(4, 1))
def loss(model, batch):
    return model(batch[0]).square().mean()
data = [(mx.array([1.0, i]),) for i in range(10)]
run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=data)
for step in run:
    print(step.number, run.rank, run.world_size, run.is_main)
(run.output_dir / "digest").write_text(run.digest())
"""


def python(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "train.py")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_script_runs_alone_and_repeats(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(JOB)
    digests = set()
    for _ in range(2):
        done = python(tmp_path)
        assert (done.stdout, done.stderr) == ("1 0 1 True\n2 0 1 True\n3 0 1 True\n", "")
        digests.add((tmp_path / "output" / "digest").read_text())
    assert len(digests) == 1


UNREPEATED = SCRIPT.replace(
    "return model(batch[0]).square().mean()",
    "import time; return model(batch[0]).square().mean() * (time.perf_counter_ns() % 1000 / 1e6)",
)


def test_what_does_not_repeat_is_said_or_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNREPEATED)
    (tmp_path / "job.toml").write_text(JOB)
    done = python(tmp_path)
    why = "one grain computed twice gave different bits"
    assert (done.returncode, done.stderr) == (0, f"elasticd: exact: false: {why}\n")
    (tmp_path / "job.toml").write_text(JOB + "[world]\nrequire_exact = true\n")
    done = python(tmp_path)
    assert (done.returncode, done.stdout) == (1, ""), "no step was made"
    assert f"its bits can't be promised: {why}" in done.stderr


def test_a_sum_in_another_order_is_no_promise(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(JOB + '[world]\nreduction = "fast"\n')
    assert "exact: false: reduction" in python(tmp_path).stderr


def test_the_job_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = python(tmp_path)
    assert done.returncode == 1 and "job.toml: not found" in done.stderr
    other = tmp_path / "other"
    other.mkdir()
    (other / "job.toml").write_text(JOB.replace("steps = 3", "steps = 1"))
    (other / "train.py").touch()
    assert python(tmp_path, ELASTICD_JOB=str(other / "job.toml")).stdout == "1 0 1 True\n"
    assert (other / "output" / "digest").exists()
