"""What the shells get while somebody types, as they ask for it: by running the program."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import commandpages
from tests.nursery import COMMAND, Nurseries

from .test_commands import PROGRAM, Daemon

pytestmark = pytest.mark.process

JOBS = ["byte-lm-1-k3f9", "digits-2-aaaa"]
ROWS = [{"step": step, "lineage": "ab"} for step in (10, 120, 20, 20)]
SHELLS = ["bash", "zsh", "fish"]


Asked = Callable[[str, str, Path | None], list[str]]


@pytest.fixture
def asked(nurseries: Nurseries) -> Asked:
    return partial(_asked, nurseries)


def _asked(nurseries: Nurseries, shell: str, typed: str, home: Path | None) -> list[str]:
    """What a shell gets for a line that ends where the cursor is."""
    variables = {"_ELASTICCTL_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        words = shlex.split(typed)
        at = len(words) if typed.endswith(" ") else len(words) - 1
        variables |= {"COMP_WORDS": typed, "COMP_CWORD": str(at)}
    else:
        variables |= {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    variables |= {"ELASTICD_HOME": str(home)} if home is not None else {}
    done = run(variables, nurseries)
    text = done.stdout
    if shell == "zsh":
        if text.strip() == "_files":
            return []
        text = text.replace("_arguments '*: :((", "").replace("))'", "").replace('"', "")
    return [line.split("\t")[0] for line in text.split("\n") if line]


def run(variables: dict[str, str], nurseries: Nurseries) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "ELASTICD_HOME"} | variables
    if nurseries.can_start(environment):
        done = nurseries.run(COMMAND, [], environment, 60)
    else:
        done = subprocess.run(PROGRAM, capture_output=True, text=True, timeout=60, env=environment)
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.mark.parametrize("shell", SHELLS)
def test_jobs_nodes_and_steps(
    asked: Asked, shell: str, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    fake = daemon(home, {"status": status, "checkpoints": {"checkpoints": ROWS, "silent": {}}})
    assert asked(shell, "elasticctl cancel dig", home) == [JOBS[1]]
    assert asked(shell, "elasticctl status ", home) == JOBS
    assert asked(shell, "elasticctl drain node-", home) == ["node-0", "node-1"]
    export = f"elasticctl checkpoints export {JOBS[0]} --step "
    assert asked(shell, export, home) == ["120", "20", "10"]
    assert asked(shell, export + "1", home) == ["120", "10"]
    assert fake.requests[-1] == {"do": "checkpoints", "job": JOBS[0]}
    assert asked(shell, f"elasticctl logs {JOBS[0]} --rank ", home) == ["0", "1"]
    assert asked(shell, f"elasticctl chaos kill {JOBS[0]} --rank ", home) == ["0", "1"]
    assert asked(shell, "elasticctl chaos link node-0 node-", home) == ["node-0", "node-1"]
    assert asked(shell, f"elasticctl checkpoints export {JOBS[0]} --lineage ", home) == ["ab"]
    assert asked(shell, "elasticctl jobs --state fi", home) == ["finished"]
    assert asked(shell, "elasticctl notify --test --event job_", home) == [
        "job_finished", "job_failed",
    ]  # fmt: skip


def test_whatever_names_a_job_a_node_or_a_part_of_them_is_completed() -> None:
    named = {"JOB", "NODE", "A", "B", "--rank", "--step", "--lineage", "--state", "--event"}
    found, lacking = set[str](), list[str]()
    for command, params in commandpages.parameters():
        for each in params:
            if names := named & {*each.opts, each.metavar}:
                found |= names
                if each._custom_shell_complete is None:
                    lacking.append(f"{command} {names}")
    assert not lacking and found == named


def test_of_the_home_that_is_named(
    asked: Asked, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    daemon(home, {"status": status})
    for typed in (f"elasticctl --home {home} cancel dig", f"elasticctl cancel --home {home} dig"):
        assert asked("bash", typed, None) == [JOBS[1]]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("typed", ["cancel ", "drain n", "checkpoints export j --step "])
def test_without_a_daemon_there_is_nothing(
    asked: Asked, shell: str, typed: str, home: Path
) -> None:
    assert asked(shell, f"elasticctl {typed}", home) == []


@pytest.mark.parametrize("said", [{"error": "no", "code": 1}, {"jobs": 7}, {"jobs": [7, {}]}])
def test_nor_where_it_says_something_strange(
    asked: Asked, said: dict[str, Any], home: Path, daemon: Daemon
) -> None:
    daemon(home, {"status": said})
    assert asked("bash", "elasticctl cancel ", home) == []


def test_bash_itself(
    nurseries: Nurseries, home: Path, tmp_path: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    daemon(home, {"status": status})
    program = tmp_path / "elasticctl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    script = run({"_ELASTICCTL_COMPLETE": "source_bash"}, nurseries).stdout
    typed = f"""{script}
COMP_WORDS=({program} cancel by) COMP_CWORD=2
_elasticctl_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", typed], capture_output=True, text=True, timeout=60,
        env=os.environ | {"ELASTICD_HOME": str(home)},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{JOBS[0]}\n", ""), sys.version
