"""elasticctl preflight: what is shown of a report, and the exit code."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.moments import age

from .test_commands import PROGRAM

Ctl = Callable[..., tuple[int, str, str]]


def check(name: str, where: str, verdict: str = "pass", value: str = "x", cure: str = "") -> Any:
    return {"check": name, "where": where, "verdict": verdict, "value": value, "cure": cure}


AGO_SECONDS = 10.2 * 86_400
"""A report of ten days ago, whenever in a long run of tests it is shown."""


def report(*checks: Any) -> dict[str, Any]:
    wrong = sum(each["verdict"] == "fail" for each in checks)
    return {"asked": "n1", "time": time.time() - AGO_SECONDS, "wrong": wrong, "checks": [*checks]}


GOOD = report(check("mlx", "n1"), check("mlx", "n2"), check("disk", "n1"), check("disk", "n2"))
BAD = report(
    check("mlx", "n1"),
    check("mlx", "n2", "fail", "0.31", "Install MLX there"),
    check("mlx", "n3"),
    check("disk", "n1", "warn", "5 GiB", "Free space"),
)


def test_alike_nodes_share_a_row(ctl: Ctl, home: Path, daemon: Callable[..., Any]) -> None:
    daemon(home, {"preflight": [{"doing": "asking 2 nodes"}, GOOD]})
    code, out, err = ctl("preflight", "--home", home)
    assert code == 0 and out.startswith("asked n1, 10 d ago") and err == ""
    rows = [line.split() for line in out.splitlines() if line.startswith(("mlx", "disk"))]
    assert rows == [["mlx", "all", "pass", "x"], ["disk", "all", "pass", "x"]]
    assert "4 checks: 0 fail, 0 warn" in out


def test_what_fails_is_shown_with_its_cure(
    ctl: Ctl, home: Path, daemon: Callable[..., Any]
) -> None:
    daemon(home, {"preflight": BAD})
    code, out, _ = ctl("preflight", "--home", home)
    assert code == 1 and "fail  mlx, n2: Install MLX there." in out
    assert "warn  disk, n1: Free space." in out and "n1, n3" in out
    assert "4 checks: 1 fails, 1 warns" in out


def test_warnings_alone_are_no_failure(ctl: Ctl, home: Path, daemon: Callable[..., Any]) -> None:
    daemon(home, {"preflight": report(check("disk", "n1", "warn", "5 GiB", "Free space"))})
    assert ctl("preflight", "--home", home)[0] == 0


@pytest.mark.parametrize(("found", "code"), [(GOOD, 0), (BAD, 1)])
def test_programs_get_it_as_it_is(
    ctl: Ctl, home: Path, daemon: Callable[..., Any], found: dict[str, Any], code: int
) -> None:
    daemon(home, {"preflight": [{"doing": "asking"}, found]})
    ended, out, _ = ctl("preflight", "--json", "--home", home)
    told = json.loads(out)
    assert (
        ended == code and told["age_seconds"] >= AGO_SECONDS and told["checks"] == found["checks"]
    )


def test_the_last_one_is_asked_for(ctl: Ctl, home: Path, daemon: Callable[..., Any]) -> None:
    running = daemon(home, {"preflight": GOOD})
    assert ctl("preflight", "--last", "--home", home)[0] == 0
    ctl("preflight", "--home", home)
    ctl("check-network", "--busy", "--home", home)
    ctl("calibrate", "--seconds", "30", "--home", home)
    ctl("calibrate", "--last", "--home", home)
    asked = [(each.get("last"), each.get("only"), each.get("busy")) for each in running.requests]
    assert asked == [
        (True, None, None), (None, None, None), (None, "links", True),
        (None, "speed", None), (True, "speed", None),
    ]  # fmt: skip
    assert [each.get("seconds") for each in running.requests[3:]] == [30.0, None]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (119, "119 s"), (120, "2 m"), (7200, "2 h"), (1e6, "12 d")]
)
def test_ages(seconds: float, said: str) -> None:
    assert age(seconds) == said


def test_all_are_all_that_there_are(ctl: Ctl, home: Path, daemon: Callable[..., Any]) -> None:
    """Of one that couldn't be asked nothing is known."""
    answers = [check("answers", node) for node in ("n1", "n2")]
    old = check("answers", "n3", "warn", "it is older", "Upgrade")
    links = [check("link", "n1 > n2"), check("link", "n2 > n1")]
    both = [check("mlx", "n1"), check("mlx", "n2")]
    daemon(home, {"preflight": report(*answers, old, *both, *links)})
    assert " all " not in ctl("preflight", "--home", home)[1]
    daemon(home, {"preflight": report(*answers, *both, *links)})
    assert ctl("preflight", "--home", home)[1].count(" all ") == 3


def test_a_daemon_of_before_is_said_to_be_one(
    ctl: Ctl, home: Path, daemon: Callable[..., Any]
) -> None:
    daemon(home, {"preflight": {"error": "unknown request 'preflight'", "code": 2}})
    code, out, err = ctl("preflight", "--home", home)
    assert (code, out) == (1, "") and "is of an earlier version" in err and str(home) in err
    daemon(home, {"preflight": {"error": "bad request 'preflight'", "code": 2}})
    assert ctl("preflight", "--home", home)[0] == 2


def test_one_that_can_measure_no_speeds_is_said_to_be_of_before(
    ctl: Ctl, home: Path, daemon: Callable[..., Any]
) -> None:
    daemon(home, {"preflight": {"error": "bad request 'preflight': only", "code": 2}})
    code, out, err = ctl("calibrate", "--home", home)
    assert (code, out) == (1, "") and "which measures no speeds" in err


@pytest.mark.parametrize("seconds", ["0", "61", "nan", "long"])
def test_a_wrong_time_asks_nobody(
    ctl: Ctl, home: Path, daemon: Callable[..., Any], seconds: str
) -> None:
    running = daemon(home, {"preflight": GOOD})
    assert ctl("calibrate", "--seconds", seconds, "--home", home)[0] == 2
    assert running.requests == []


@pytest.mark.process
@pytest.mark.parametrize("command", ["preflight", "check-network", "calibrate"])
def test_how_far_it_is_is_told_to_a_terminal_and_the_table_to_stdout(
    home: Path, daemon: Callable[..., Any], command: str
) -> None:
    daemon(home, {"preflight": [{"doing": "asking 2 nodes"}, GOOD]})
    screen, inner = pty.openpty()
    try:
        told = subprocess.run(
            [*PROGRAM, command, "--home", str(home)],
            stdout=subprocess.PIPE, stderr=inner, timeout=60, check=True,
            env={**os.environ, "TERM": "xterm"},
        ).stdout.decode()  # fmt: skip
        shown = os.read(screen, 65536).decode()
    finally:
        os.close(screen)
        os.close(inner)
    assert "asking 2 nodes" in shown and "asked n1" not in shown
    assert told.startswith("asked n1") and "asking" not in told
