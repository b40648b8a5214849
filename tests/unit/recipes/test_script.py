"""A plain job's script as a process: what it is given, how it ends, what is noticed of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from elasticd.ipc.child import CHILD_VARIABLE
from elasticd.recipes.kept import HOSTS
from elasticd.recipes.script import Ring, Script, said

DEADLINE_SECONDS = 30.0
Start = Callable[..., Script]


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def begin(code: str, environment: Mapping[str, str] = os.environ) -> Script:
        script = Script([sys.executable, "-c", code], tmp_path, environment)
        started.append(script)
        return script

    yield begin
    for script in started:
        script.end()


def test_what_mlx_is_told(tmp_path: Path) -> None:
    told = Ring(1, ("10.0.0.1:5", "10.0.0.2:6")).variables(tmp_path)
    assert told == {
        "MLX_RANK": "1", "MLX_HOSTFILE": str(tmp_path / HOSTS), "MLX_WORLD_SIZE": "2",
        "MLX_GLOBAL_RANK": "1", "MLX_LOCAL_RANK": "0",
    }  # fmt: skip
    assert json.loads((tmp_path / HOSTS).read_text()) == [["10.0.0.1:5"], ["10.0.0.2:6"]]
    assert "MLX_HOSTFILE" not in Ring(0, (":0",)).variables(tmp_path), "a ring of one is none"


def test_it_knows_nothing_of_the_trainer_beside_it(start: Start) -> None:
    script = start(
        f"import os; print(sorted(set(os.environ) & {{'A', '{CHILD_VARIABLE}'}}))",
        {**os.environ, CHILD_VARIABLE: "{}", "A": "b"},
    )
    until(lambda: script.status() is not None)
    script.ended()
    assert (script.status(), script.tail()) == (0, "['A']\n")


def test_its_end_and_its_last_words(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    script = start("print('x' * 9000); raise ValueError('no')")
    until(lambda: script.status() is not None)
    script.ended()
    assert script.status() == 1 and script.tail().endswith("ValueError: no\n")
    assert len(script.tail()) <= 8192 and "x" * 9000 in capfd.readouterr().out


def test_all_that_it_has_started_ends_with_it(start: Start) -> None:
    script = start("import subprocess; subprocess.Popen(['sleep', '600']).wait()")
    until(lambda: len(psutil.Process(script.pid).children()) == 1)
    (child,) = psutil.Process(script.pid).children()
    script.end()
    until(lambda: not alive(child.pid))


@pytest.mark.parametrize("last", ["", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_what_it_has_started_ends_also_when_it_has_ended_by_itself(last: str, start: Start) -> None:
    script = start(
        "import os, signal, subprocess, sys;"
        f"print(subprocess.Popen(['sleep', '600']).pid, flush=True); {last}"
    )
    until(lambda: script.status() is not None)
    script.ended()
    until(lambda: not alive(int(script.tail())))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_when_who_has_started_it_is_gone(number: int, tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from elasticd.recipes.script import Script;"
        "s = Script(['sleep', '600'], Path.cwd(), os.environ); print(s.pid, flush=True);"
        f"os.kill(os.getpid(), {int(number)})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == -number
    until(lambda: not alive(int(ended.stdout)))


def test_who_is_stopped_is_noticed(start: Start) -> None:
    script = start("import time; time.sleep(600)")
    assert script.stopped_seconds() == 0
    os.kill(script.pid, signal.SIGSTOP)
    until(lambda: script.stopped_seconds() > 0)
    os.kill(script.pid, signal.SIGCONT)
    until(lambda: script.stopped_seconds() == 0)


def test_who_does_nothing_is_noticed_and_who_prints_or_computes_is_not(start: Start) -> None:
    idle = start("import time; time.sleep(600)")
    prints = start("import time\nwhile True: print(flush=True); time.sleep(0.01)")
    computes = start("while True: pass")
    until(lambda: idle.idle_seconds() > 1 + max(prints.idle_seconds(), computes.idle_seconds()))


@pytest.mark.parametrize(
    ("printed", "there"),
    [
        ("no newline", "no newline\nelasticd: next\n"),
        ("one\n", "one\nelasticd: next\n"),
        ("", "elasticd: next\n"),
    ],
)
def test_our_own_lines_begin_a_line(
    printed: str, there: str, start: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    said("what other scripts have left unfinished is at its end now")
    capfd.readouterr()
    script = start(f"print({printed!r}, end='')")
    until(lambda: script.status() is not None)
    script.ended()
    said("next")
    said("and more")
    assert capfd.readouterr().out == f"{there}elasticd: and more\n"
