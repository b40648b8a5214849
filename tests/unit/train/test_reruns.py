"""A script without ``if __name__ == "__main__":`` whose processes run it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from elasticd.settings.job import load
from elasticd.train.reruns import PIPE_VARIABLE

pytestmark = pytest.mark.process

CURE = 'below `if __name__ == "__main__":`'
JOB = """
[job]
name = "job"
entrypoint = "{entrypoint}"
[batch]
global = 2
micro = 2
[train]
steps = 2
"""
ABOVE = """
import concurrent.futures, multiprocessing, os, subprocess, sys
import mlx.core as mx, mlx.nn as nn, mlx.optimizers as optim
import elasticd

context = multiprocessing.get_context({method!r})
def negative(number):
    return -number
def loss(model, batch):
    return model(batch[0]).square().mean()
data = [(mx.array([1.0, i]),) for i in range(4)]
def train():
    run = elasticd.Run(model=nn.Linear(2, 1), optimizer=optim.SGD(0.1), loss=loss, data=data)
    for step in run:
        print(step.number)
"""
POOL = """
with context.Pool(2) as pool:
    print(pool.map(negative, range(3)))
"""
EXECUTOR = """
with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
    print(list(pool.map(negative, range(3))))
"""
LAZY = """
class Negatives:
    pool = None
    def __len__(self):
        return 4
    def __getitem__(self, index):
        self.pool = self.pool or context.Pool(1)
        return (mx.array([1.0, *self.pool.map(negative, [index])]),)
data = Negatives()
"""
CAUGHT = """
try:
    train()
except elasticd.errors.UsageError:
    pass
"""


class Ended(NamedTuple):
    status: int
    stdout: str
    stderr: list[str]


def run(
    folder: Path, script: str, method: str = "spawn", entrypoint: str = "train.py", **beside: str
) -> Ended:
    """``script`` by itself, as a job of this folder; ``beside``: other scripts there."""
    (folder / "job.toml").write_text(JOB.format(entrypoint=entrypoint))
    for name, text in {**beside, "train": script}.items():
        (folder / f"{name}.py").write_text(ABOVE.format(method=method) + text)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not [*folder.glob("elasticd-*")], "something stays"
    return Ended(done.returncode, done.stdout, done.stderr.splitlines())


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize(
    ("script", "stdout", "came_to"),
    [
        ("train()" + POOL, "1\n2\n", "elasticd.Run"),
        ("train()" + EXECUTOR, "1\n2\n", "elasticd.Run"),
        (LAZY + "train()", "", "elasticd.Run"),
        (CAUGHT + POOL, "1\n2\n", "elasticd.Run"),
        (POOL + "train()", "", "where processes are started"),
    ],
    ids=["behind the loop", "an executor", "in the data", "caught", "above the run"],
)
def test_a_script_that_its_own_processes_run_again_ends_with_the_cure(
    script: str, stdout: str, came_to: str, method: str, tmp_path: Path
) -> None:
    ended = run(tmp_path, script, method)
    assert (ended.status, ended.stdout) == (1, stdout)
    assert f"and came to {came_to}: " in ended.stderr[-1] and CURE in ended.stderr[-1]


def test_so_does_one_that_is_not_the_jobs_entrypoint(tmp_path: Path) -> None:
    ended = run(tmp_path, "train()" + POOL, entrypoint="other.py", other="")
    assert (ended.status, CURE in ended.stderr[-1]) == (1, True)


GUARD = 'if __name__ == "__main__":\n    '


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_process_that_is_to_train_may(method: str, tmp_path: Path) -> None:
    trains = f"{GUARD}process = context.Process(target=train)\n    process.start()\n"
    trains += "    process.join()\n    print(process.exitcode)\n"
    assert run(tmp_path, trains, method) == (0, "1\n2\n0\n", [])


def test_with_a_guard_processes_work(tmp_path: Path) -> None:
    indented = (EXECUTOR + POOL).strip().replace("\n", "\n    ")
    ended = run(tmp_path, f"{GUARD}train()\n    {indented}\n    train()")
    assert ended.stdout == "1\n2\n[0, -1, -2]\n[0, -1, -2]\n"
    assert "a script has one elasticd.Run" in ended.stderr[-1], "another fault of the script's"


def test_where_processes_are_forked_no_guard_is_needed(tmp_path: Path) -> None:
    assert run(tmp_path, POOL + "train()", "fork") == (0, "[0, -1, -2]\n1\n2\n", [])


def test_a_child_that_the_script_forks_ends_as_it_did(tmp_path: Path) -> None:
    """It has not the thread that hears, and must not take what its parent is told."""
    forks = "train()\nif not (child := os.fork()):\n    sys.exit(3)\n"
    forks += "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    script = forks + POOL
    ended = run(tmp_path, script)
    assert (ended.status, ended.stdout) == (1, "1\n2\n3\n")
    assert CURE in ended.stderr[-1]


def test_a_script_that_closes_all_that_is_open_ends_as_it_did(tmp_path: Path) -> None:
    assert run(tmp_path, "train()\nos.closerange(3, 100)") == (0, "1\n2\n", [])


def test_a_program_that_the_script_starts_has_no_part_in_it(tmp_path: Path) -> None:
    starts = "train()\nprint(subprocess.run([sys.executable, 'aside.py']).returncode)\n"
    lacks = "process = context.Process(target=negative, args=[1])\nprocess.start()\n"
    lacks += "process.join()\nsys.exit(process.exitcode + 1)\n"
    ended = run(tmp_path, starts, aside=lacks)
    assert (ended.status, ended.stdout) == (0, "1\n2\n2\n")
    assert any("before the" in line for line in ended.stderr), "it said so itself, as Python does"


def test_where_nobody_hears_of_it_the_process_says_it(tmp_path: Path) -> None:
    drops = f"train()\nos.environ.pop({PIPE_VARIABLE!r})\nprocess = context.Process(target=train)\n"
    drops += "process.start()\nprocess.join()\nprint(process.exitcode)\n"
    ended = run(tmp_path, drops)
    assert (ended.status, ended.stdout) == (0, "1\n2\n1\n")
    assert ended.stderr[-1].startswith("elasticd.errors.UsageError: ") and CURE in ended.stderr[-1]


@pytest.mark.parametrize(
    ("script", "status", "said"), [(LAZY + "train()", 1, [CURE]), ("train()", 0, [])]
)
def test_a_first_step_that_is_tried_ends_with_the_cure_and_leaves_nothing(
    script: str, status: int, said: list[str], tmp_path: Path
) -> None:
    """It is not waited for until its time is up."""
    (tmp_path / "job.toml").write_text(JOB.format(entrypoint="train.py"))
    (tmp_path / "train.py").write_text(ABOVE.format(method="spawn") + script)
    (tmp_path / "spec.json").write_text(json.dumps(load(tmp_path / "job.toml").to_dict()))
    done = subprocess.run(
        [sys.executable, "-m", "elasticd.train.firststep", "spec.json", "result.json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert all(words in done.stderr.splitlines()[-1] for words in said)
    assert not [*tmp_path.glob("elasticd-*")]
