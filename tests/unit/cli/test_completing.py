"""What the shells get while somebody types, as they ask for it: by running the program."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
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
    assert fake.requests[-1] == {"do": "checkpoints", "job": JOBS[0], "parts": True}
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


BASH = """{script}
COMP_WORDS=({program} cancel by) COMP_CWORD=2
_elasticctl_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = """{script}
complete --do-complete "elasticctl cancel by"
"""
ZSH = """
autoload -Uz compinit
compinit -u -d {folder}/dump
{script}
print ready
"""


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_shell_itself(
    nurseries: Nurseries,
    home: Path,
    tmp_path: Path,
    daemon: Daemon,
    status: dict[str, Any],
    shell: str,
) -> None:
    """What is typed is completed as by the key: as much as the ids that fit have in common."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell} (apt-get install {shell})")
    daemon(home, {"status": status})
    program = tmp_path / "elasticctl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    script = run({"_ELASTICCTL_COMPLETE": f"source_{shell}"}, nurseries).stdout
    own = {"ELASTICD_HOME": str(home), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env = os.environ | own | {"HOME": str(tmp_path), "TERM": "dumb"}
    if shell == "zsh":
        typed_at_zsh(ZSH.format(script=script, folder=tmp_path), env, JOBS[0])
        return
    typed = {"bash": BASH, "fish": FISH}[shell].format(script=script, program=program)
    words = {"bash": ["--norc", "-c"], "fish": ["--no-config", "-c"]}[shell]
    done = subprocess.run(
        [shell, *words, typed], capture_output=True, text=True, timeout=60, env=env
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [JOBS[0]], sys.version
    assert done.stderr == ""


def typed_at_zsh(script: str, env: dict[str, str], wanted: str) -> None:
    """Waits until a terminal shows it on which the tab key was pressed behind an unfinished id. zsh
    completes nowhere else."""
    own, its = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "--no-rcs", "-i"],
        stdin=its,
        stdout=its,
        stderr=its,
        env=env,
        start_new_session=True,
    )
    os.close(its)

    def until(text: str) -> None:
        shown = ""
        while text not in shown:
            assert select.select([own], [], [], 60)[0], shown
            shown += os.read(own, 4096).decode()

    try:
        file = Path(env["HOME"]) / "completion.zsh"
        file.write_text(script)
        os.write(own, f"source {file}\n".encode())
        until("ready\r\n")
        os.write(own, b"elasticctl cancel by\t")
        until(wanted.removeprefix("by"))
    finally:
        process.kill()
        process.wait()
        os.close(own)
