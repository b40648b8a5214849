"""Probes in children: one that hangs, crashes or prints is a finding like others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.cli.mac import running
from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.mac.probes import PROBES
from elasticd.cli.mac.running import run_probe
from elasticd.preflight.finding import passed

pytestmark = pytest.mark.process


def probe(seconds: float = 30.0) -> MacProbe:
    return MacProbe("flush", "flushes", lambda folder: passed("here"), seconds, "send it")


def child(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def test_the_last_line_is_the_finding(tmp_path: Path) -> None:
    script = (
        "import os, sys; print('by the way'); assert os.listdir(sys.argv[2]) == [];"
        'print(\'{"verdict": "warn", "value": "slow", "cure": "a disk"}\')'
    )
    found = run_probe(probe(), tmp_path, child(script))
    assert found.plain() == {
        "name": "flush", "about": "flushes", "verdict": "warn", "value": "slow", "cure": "a disk",
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("import os; os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("raise SystemExit('libmlx is missing')", "status 1: libmlx is missing"),
        ("print('[]')", "status 0"),
        ("print('{}')", "status 0"),
        ("", "status 0"),
    ],
)
def test_one_that_says_nothing_fails(tmp_path: Path, script: str, value: str) -> None:
    found = run_probe(probe(), tmp_path, child(script)).finding
    assert (found.verdict, found.value, found.cure) == ("fail", value, "send it")


def test_one_that_hangs_fails_and_leaves_nothing(tmp_path: Path) -> None:
    script = "import subprocess, time; subprocess.Popen(['/bin/sleep', '600']); time.sleep(600)"
    found = run_probe(probe(1.0), tmp_path, child(script)).finding
    assert (found.verdict, found.value) == ("fail", "it hangs: nothing was said within 1 s")
    assert found.cure == "send it"


INNER = """import pathlib, signal, sys, time
def end(*_):
    time.sleep(0.5)
    pathlib.Path(sys.argv[1], "cleaned").touch()
    sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path(sys.argv[1], "runs").touch()
time.sleep(600)
"""
CLEANS_UP = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {INNER!r}, FOLDER], check=False)
"""


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe's time is over as soon as what it has started runs, however slow the machine is."""

    class Late(subprocess.Popen[bytes]):
        def communicate(self, *given: Any, timeout: float | None = None) -> tuple[bytes, bytes]:
            if timeout is None:
                return super().communicate(*given)
            until = time.monotonic() + 50
            while not (tmp_path / "runs").exists():
                assert self.poll() is None and time.monotonic() < until
                time.sleep(0.02)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(
        running, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": Late})
    )


@pytest.mark.usefixtures("late")
def test_one_that_is_late_may_end_what_it_has_started(tmp_path: Path) -> None:
    run_probe(probe(), None, child(CLEANS_UP.replace("FOLDER", repr(str(tmp_path)))))
    assert (tmp_path / "cleaned").exists()


def test_one_that_is_interrupted_may_end_what_it_has_started(tmp_path: Path) -> None:
    script = CLEANS_UP.replace("FOLDER", repr(str(tmp_path)))
    code = (
        "import sys; from elasticd.cli.mac.probe import MacProbe;"
        "from elasticd.preflight.finding import passed;"
        "from elasticd.cli.mac.running import run_probe;"
        "run_probe(MacProbe('a', 'b', passed, 60.0, ''), None, (sys.executable, '-c', sys.argv[1]))"
    )
    ours = subprocess.Popen([sys.executable, "-c", code, script], start_new_session=True)
    try:
        until = time.monotonic() + 50
        while not (tmp_path / "runs").exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(ours.pid, signal.SIGINT)
        ours.wait(60)
    finally:
        ours.kill()
        ours.wait()
    assert (tmp_path / "cleaned").exists()


HANGS = """
import pathlib, sys, time
from elasticd.cli.mac.__main__ import play
from elasticd.cli.mac.probe import MacProbe
from elasticd.cli.mac.serving import LocalStage, service

class Hangs(LocalStage):
    def install(self):
        self.log().parent.mkdir(parents=True)
        self.log().write_text("begun\\nno address\\n")
        pathlib.Path(NOTED, "runs").touch()
        time.sleep(600)

    def remove(self):
        pathlib.Path(NOTED, "removed").touch()

folder = pathlib.Path(sys.argv[2])
play(MacProbe("service", "", lambda at: service(at, Hangs(at)), 1.0, ""), folder)
"""


@pytest.mark.usefixtures("late")
def test_a_service_whose_probe_is_late_is_taken_away(tmp_path: Path) -> None:
    found = run_probe(probe(), tmp_path, child(HANGS.replace("NOTED", repr(str(tmp_path)))))
    assert "it hangs" in found.finding.value and (tmp_path / "removed").exists()
    assert found.printed == "begun\nno address\n", "the bundle hasn't what its daemon logged"


@pytest.mark.usefixtures("late")
def test_the_demo_is_waited_for_when_its_probe_is_late(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from elasticd.cli.mac.__main__ import play;"
        "from elasticd.cli.mac.probe import MacProbe; from elasticd.cli.mac.whole import demo;"
        f"inner = [sys.executable, '-c', {INNER!r}, {str(tmp_path)!r}];"
        "play(MacProbe('demo', '', lambda at: demo(at, inner), 1.0, ''), pathlib.Path('.'))"
    )
    run_probe(probe(), None, child(script))
    assert (tmp_path / "cleaned").exists()


def test_each_probe_has_a_name_of_its_own_and_a_cure() -> None:
    assert len({each.name for each in PROBES}) == len(PROBES)
    assert all(each.about and each.crashed and each.seconds > 0 for each in PROBES)


def test_a_real_child(tmp_path: Path) -> None:
    (zombies,) = [each for each in PROBES if each.name == "zombies"]
    assert run_probe(zombies, tmp_path).finding.verdict == "pass"


def test_one_that_takes_root_stays_in_the_session_in_which_the_password_was_given(
    tmp_path: Path,
) -> None:
    script = (
        "import json, os; value = f'{os.getsid(0)} {os.getpgid(0) == os.getpid()}';"
        "print(json.dumps({'verdict': 'pass', 'value': value, 'cure': ''}))"
    )
    rooted = replace(probe(), root=True)
    assert run_probe(rooted, tmp_path, child(script)).finding.value == f"{os.getsid(0)} True"
    alone = run_probe(probe(), tmp_path, child(script)).finding.value
    assert alone.endswith(" True") and alone != f"{os.getsid(0)} True"
