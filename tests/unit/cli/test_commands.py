"""elasticctl against a fake daemon: what is asked, what is shown, how it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.build import build
from elasticd.cli import watch
from elasticd.client import connection

Ctl = Callable[..., tuple[int, str, str]]
Daemon = Callable[..., Any]
PROGRAM = [sys.executable, "-c", "from elasticd.cli import main; main()"]

EVENTS = [
    {
        "time": 1767312000.5,
        "node": "node-0",
        "job": "byte-lm-1-k3f9",
        "generation": 1,
        "kind": "world_formed",
        "reason": "3 nodes are alive",
        "members": ["node-0"],
    },
    {
        "time": 1767312001.0,
        "node": "node-1",
        "job": None,
        "generation": None,
        "kind": "node_joined",
        "reason": "",
    },
]


def test_version(ctl: Ctl) -> None:
    assert ctl("--version") == (0, f"elasticctl {build()}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["submit", "-h"], ["local"]])
def test_help(arguments: list[str], ctl: Ctl) -> None:
    code, out, err = ctl(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: elasticctl")


def command_names(ctl: Ctl, *group: str) -> list[str]:
    """What the help of a group of commands lists."""
    listed = ctl(*group, "--help")[1].partition("Commands:\n")[2]
    assert "..." not in listed, f"{group}: a short help is cut"
    return [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]


def test_every_command_has_an_example(ctl: Ctl) -> None:
    for name in command_names(ctl):
        for inner in command_names(ctl, name) or [""]:
            command = f"{name} {inner}".strip()
            out = ctl(*command.split(), "--help")[1]
            assert f"elasticctl {command}" in out.partition("Example")[2], command


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nope"], "No such command 'nope'"),
        (["noeds"], "No such command 'noeds'"),
        (["submit"], "Missing argument 'JOB.toml' (see 'elasticctl submit --help')"),
        (["logs"], "Missing argument 'JOB'"),
        (["logs", "j", "--rank", "x"], "Invalid value for '--rank'"),
        (["jobs", "--nope"], "No such option"),
        (["jobs", "extra"], "extra"),
        (["local", "up", "-n", "0"], "Invalid value for '-n' / '--nodes'"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], error: str, ctl: Ctl) -> None:
    code, out, err = ctl(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("elasticctl: ")
    assert error in err
    assert err.count("\n") == 1


def test_no_daemon(ctl: Ctl, home: Path) -> None:
    code, out, err = ctl("status", "--home", home)
    assert (code, out) == (3, "")
    assert f"no daemon runs at {home}" in err


def test_a_socket_that_nobody_serves(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    home.mkdir()
    (home / "control.sock").touch()
    code, _, err = ctl("status", "--home", home)
    assert code == 3 and f"no daemon runs at {home} (start one with" in err
    code, out, _ = ctl("status", "--json", "--home", home)
    assert code == 3 and json.loads(out)["error"] in err


def test_a_daemon_that_hangs_up(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"status": []})
    code, _, err = ctl("status", "--home", home)
    assert (code, err) == (3, f"elasticctl: the daemon at {home} doesn't answer (it hung up)\n")


def test_what_a_daemon_refuses(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"cancel": {"error": "no job x", "code": 1}})
    assert ctl("cancel", "x", "--home", home) == (1, "", "elasticctl: no job x\n")
    daemon(home, {"status": {"error": "bad\nquestion", "code": 2}})
    assert ctl("status", "--home", home) == (2, "", "elasticctl: bad question\n")


@pytest.mark.parametrize("where", ["before", "after", "environment"])
def test_home_and_json_before_and_after_the_command(
    where: str,
    ctl: Ctl,
    home: Path,
    daemon: Daemon,
    status: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon(home, {"status": status})
    match where:
        case "before":
            code, out, err = ctl("--home", home, "--json", "jobs")
        case "after":
            code, out, err = ctl("jobs", "--json", "--home", home)
        case _:
            monkeypatch.setenv("ELASTICD_HOME", str(home))
            code, out, err = ctl("jobs", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"jobs": status["jobs"]}


def test_status_as_json(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    fake = daemon(home, {"status": status})
    assert json.loads(ctl("status", "--json", "--home", home)[1]) == status
    assert json.loads(ctl("nodes", "--json", "--home", home)[1]) == {"nodes": status["nodes"]}
    assert json.loads(ctl("status", "j", "--json", "--home", home)[1]) == status
    assert fake.requests == [
        {"do": "status", "parts": True},
        {"do": "status", "ended": 0, "parts": True},
        {"do": "status", "job": "j", "parts": True},
    ]


def test_the_batch_of_a_plain_job_is_not_known(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    """For the daemons each round of news between its ranks is a step of one sample."""
    job = status["jobs"][0]
    batch = {"global_batch": 1, "micro_batch": 1, "micro_batch_asked": 1}
    daemon(home, {"status": {**status, "jobs": [{**job, "mode": "plain", **batch}, job]}})
    for command in ("status", "jobs"):
        plain, other = json.loads(ctl(command, "--json", "--home", home)[1])["jobs"]
        assert {key: plain[key] for key in batch} == dict.fromkeys(batch)
        assert other == job and job["global_batch"] is not None


def test_json_has_no_nan(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"status": {"jobs": [{"loss": float("nan")}]}})
    assert json.loads(ctl("jobs", "--json", "--home", home)[1]) == {"jobs": [{"loss": None}]}


def test_nodes(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    daemon(home, {"status": status})
    assert ctl("nodes", "--home", home)[1] == (
        "NODE    ADDRESS         STATE   PID  CHIP    MEMORY    VERSION\n"
        "node-0  127.0.0.1:7070  alive  4100  M4 Max  64.0 GiB  0.1.0\n"
        "node-1  127.0.0.1:7071  dead      -  -       0 B       -\n"
    )


def test_jobs(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    daemon(home, {"status": status})
    assert ctl("jobs", "--home", home)[1] == (
        "JOB             STATE    STEP      LOSS  STEPS/S  RANKS  RECOVERIES  REASON\n"
        "byte-lm-1-k3f9  running  120/200  2.135      3.1      2           2  -\n"
        "digits-2-aaaa   failed   0/10         -        0      0           0  ValueError: no\n"
    )


def test_status(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    daemon(home, {"status": status})
    out = ctl("status", "--home", home)[1]
    assert out.startswith("cluster local, epoch 3, leader node-0: node-0, node-2\n\nNODE")
    assert out.endswith(
        "byte-lm-1-k3f9, generation 4:\n"
        "RANK  NODE    TRAINER  REDUCER  STEP  GRAINS  ACTIVE   CACHED  PEAK\n"
        "   0  node-0     4210     4211   120       4  1.5 GiB  0 B     3.0 GiB\n"
        "   1  node-2     4310        -   120       4  -        -       -\n"
    )


def test_status_of_a_job(ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]) -> None:
    job = {**status["jobs"][0], "ranks": [], "state": "failed", "reason": "Traceback:\n  bad\x1b"}
    daemon(home, {"status": {**status, "jobs": [job]}})
    assert ctl("status", "byte-lm-1-k3f9", "--home", home)[1] == (
        "job         byte-lm-1-k3f9\n"
        "state       failed\n"
        "reason      Traceback:\n"
        "              bad\\x1b\n"
        "step        120 of 200\n"
        "loss        2.135\n"
        "steps/s     3.1\n"
        "batch       64 samples, 8 at once\n"
        "generation  4\n"
        "recoveries  2, 0 steps lost\n"
        "exact       yes\n"
        "bytes/step  2.0 KiB sent by a rank, and as much received; fast: 1.3 KiB\n"
        "digest      ab12 (step 120)\n"
    )


def test_who_has_submitted_a_job(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    job = {**status["jobs"][0], "submitted_by": "anna", "submitted_on": "node-0"}
    daemon(home, {"status": {**status, "jobs": [job]}})
    out = ctl("status", "byte-lm-1-k3f9", "--home", home)[1]
    assert "\nsubmitted   by anna on node-0\n" in out


def test_events(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    fake = daemon(home, {"events": [*EVENTS, {"end": True}]})
    assert ctl("events", "--home", home)[1] == (
        "2026-01-02 00:00:00  byte-lm-1-k3f9  world formed: 3 nodes are alive\n"
        "2026-01-02 00:00:01  node-1  node joined\n"
    )
    out = ctl("events", "byte-lm-1-k3f9", "--json", "--home", home)[1]
    assert [json.loads(line) for line in out.splitlines()] == EVENTS
    assert fake.requests[1] == {"do": "events", "follow": False, "job": "byte-lm-1-k3f9"}


def test_events_that_are_followed_move_to_the_next_daemon(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    # The first daemon hangs up in the middle; the second repeats the history and ends it.
    first = daemon(home / "node-0", {"status": status, "events": EVENTS[:1]})
    daemon(home / "node-1", {"status": status, "events": [*EVENTS, {"end": True}]})

    def once(request: dict[str, Any]) -> list[dict[str, Any]]:
        first.answers["status"] = []
        return EVENTS[:1]

    first.answers["events"] = once
    out = ctl("events", "j", "-f", "--json", "--home", home)[1]
    assert [json.loads(line) for line in out.splitlines()] == EVENTS


def test_a_history_that_is_longer_than_is_remembered_is_not_printed_again(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "REMEMBERED_EVENTS", 3)
    many: list[dict[str, Any]] = [{**EVENTS[0], "time": 1000.0 + number} for number in range(8)]
    late = {**many[7], "text": "told late"}
    first = daemon(home / "node-0", {"status": status})
    daemon(home / "node-1", {"status": status, "events": [*many, late, {"end": True}]})

    def once(request: dict[str, Any]) -> list[dict[str, Any]]:
        first.answers["status"] = []
        return [many[0], *many[2:6], many[1]]

    first.answers["events"] = once
    out = ctl("events", "j", "-f", "--json", "--home", home)[1]
    told = [json.loads(line) for line in out.splitlines()]
    assert told == [many[0], *many[2:6], many[1], *many[6:], late]


def test_logs(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    pieces = [
        {"rank": 0, "node": "node-0", "text": "one\ntw"},
        {"rank": 1, "node": "node-1", "text": "uno\n"},
        {"rank": 0, "node": "node-0", "text": "o\nthree"},
        {"rank": None, "node": "node-2", "text": "spare\n"},
        {"end": True},
    ]
    fake = daemon(home, {"logs": pieces})
    out = ctl("logs", "j", "--home", home)[1]
    assert out == "[0] one\n[1] uno\n[0] two\n[node-2] spare\n[0] three\n"
    fake.answers["logs"] = [pieces[0], pieces[2], {"end": True}]
    assert ctl("logs", "j", "--rank", "0", "--home", home)[1] == "one\ntwo\nthree"
    assert fake.requests[1] == {"do": "logs", "job": "j", "follow": False, "rank": 0}


def test_cancel(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"cancel": {"id": "j", "state": "cancelled"}})
    assert ctl("cancel", "j", "--home", home) == (0, "j cancelled\n", "")
    assert json.loads(ctl("cancel", "j", "--home", home, "--json")[1])["state"] == "cancelled"


@pytest.mark.parametrize("state", ["finished", "failed", "cancelled"])
def test_cancel_of_a_job_that_has_ended_says_how(
    ctl: Ctl, home: Path, daemon: Daemon, state: str
) -> None:
    daemon(home, {"cancel": {"id": "j", "state": state, "already": True}})
    text = f"j has ended already ({state}); nothing was changed"
    assert ctl("cancel", "j", "--home", home) == (1, "", f"elasticctl: {text}\n")
    code, out, _ = ctl("cancel", "j", "--home", home, "--json")
    assert (code, json.loads(out)) == (1, {"error": text, "exit": 1})


def test_of_several_daemons_the_first_that_answers_is_asked(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_SECONDS", 60.0)  # a busy machine answers late
    (home / "node-0").mkdir(parents=True)
    (home / "node-0" / "control.sock").touch()
    daemon(home / "node-2", {"status": status, "cancel": {"id": "j", "state": "2"}})
    daemon(home / "node-10", {"status": status, "cancel": {"id": "j", "state": "10"}})
    assert ctl("cancel", "j", "--home", home) == (0, "j 2\n", "")


def test_a_local_cluster_in_the_default_place_is_found(
    ctl: Ctl, tmp_path: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    if sys.platform == "darwin":
        pytest.skip("the default place is not under XDG_STATE_HOME there")
    daemon(tmp_path / "state" / "elasticd" / "local" / "node-0", {"status": status})
    assert ctl("jobs", "--json")[0] == 0


def test_a_home_with_a_long_path(
    ctl: Ctl, tmp_path: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    home = tmp_path / ("long" * 30)
    daemon(home, {"status": status})
    assert ctl("nodes", "--home", home)[0] == 0


# --- processes of their own ---------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["events", "-f"], ["-h"]])
def test_it_is_said_that_the_output_can_not_be_written(
    home: Path, daemon: Daemon, status: dict[str, Any], command: list[str]
) -> None:
    daemon(home, {"status": status, "events": [EVENTS[0]] * 9 + [{"end": True}]})
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, *command, "--home", str(home)],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == ("elasticctl: standard output: No space left on device")


@pytest.mark.process
def test_in_a_folder_that_is_gone_that_is_said(home: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'cd "{gone}" && rmdir "{gone}" && exec "$@"'
    command = [*PROGRAM, "report", "job-1", "--out", "r.html", "--home", str(home)]
    done = subprocess.run(
        ["sh", "-c", line, "sh", *command], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "the current folder is gone" in done.stderr, done.stderr


@pytest.mark.process
def test_no_traceback_reaches_a_user(home: Path, daemon: Daemon) -> None:
    daemon(home, {"status": {"unexpected": 1}})
    done = subprocess.run(
        [*PROGRAM, "jobs", "--home", str(home)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "elasticctl: internal error: KeyError: 'jobs' (ELASTICD_DEBUG=1 shows where)\n"
    )
    done = subprocess.run(
        [*PROGRAM, "jobs", "--home", str(home)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ELASTICD_DEBUG": "1"},
    )
    assert "Traceback" in done.stderr


@pytest.mark.process
def test_a_reader_that_has_seen_enough(home: Path, daemon: Daemon) -> None:
    daemon(home, {"events": [EVENTS[0]] * 5000 + [{"end": True}]})
    program = subprocess.Popen(
        [*PROGRAM, "events", "--home", str(home)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with program:
        assert program.stdout is not None and program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 1


@pytest.mark.process
def test_interrupting_a_wait_leaves_the_job_running(
    tmp_path: Path, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "job.toml").write_text(
        '[job]\nname = "a"\nentrypoint = "train.py"\n'
        "[batch]\nglobal = 4\nmicro = 2\n[train]\nsteps = 3\n"
    )
    seen = threading.Event()

    def look(_: dict[str, Any]) -> dict[str, Any]:
        seen.set()
        return {**status, "jobs": [status["jobs"][0]]}

    fake = daemon(home, {"submit": {"id": "j"}, "status": look, "events": [{"end": True}]})
    program = subprocess.Popen(
        [*PROGRAM, "submit", str(tmp_path / "job.toml"), "--wait", "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert seen.wait(30)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=30)
    assert program.returncode == 130
    assert out.startswith("j\n")
    assert "elasticctl cancel j" in err
    assert "Traceback" not in err
    assert all(request["do"] != "cancel" for request in fake.requests)
