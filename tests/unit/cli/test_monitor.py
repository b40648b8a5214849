"""``elasticctl monitor`` and ``jobs --watch`` against fake daemons: in a pipe, and in a terminal
with keys."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli.monitors import looking
from elasticd.cli.monitors.joblist import picture
from elasticd.cli.monitors.looking import Lookout
from elasticd.client.client import Client

from .test_commands import PROGRAM, Ctl, Daemon
from .test_monitor_picture import FAULT, RECOVERY

JOB = "byte-lm-1-k3f9"
SECONDS = 30.0


@pytest.fixture
def answers(status: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": status,
        "events": [FAULT, RECOVERY, {"end": True}],
        "logs": [{"rank": 0, "node": "node-0", "text": "hello from zero\n"}, {"end": True}],
    }


def test_in_a_pipe_there_is_one_picture(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any]
) -> None:
    fake = daemon(home, answers)
    code, out, err = ctl("monitor", "--home", home)
    assert (code, err) == (0, "") and "\x1b" not in out
    assert JOB in out and "regroup 1.25 s" in out and "node-1" in out
    asked = [(request["do"], request.get("follow", False)) for request in fake.requests]
    assert asked == [("status", False), ("events", False)]


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "ascii"),
    [({"LC_ALL": "C"}, True), ({"LANG": "C"}, True), ({"LANG": "C", "LC_CTYPE": "POSIX"}, True),
     ({"LANG": "C.UTF-8"}, False)],
)  # fmt: skip
def test_the_locale_says_whether_there_are_other_letters_than_ascii(
    home: Path, daemon: Daemon, answers: dict[str, Any], said: dict[str, str], ascii: bool
) -> None:
    daemon(home, answers | {"losses": {"losses": [[1, 9.0], [100, 2.5]], "ranks": []}})
    known = {k: v for k, v in os.environ.items() if k != "LANG" and not k.startswith("LC_")}
    words = [*PROGRAM, "monitor", "--home", str(home)]
    done = subprocess.run(words, capture_output=True, env=known | said, timeout=60)
    assert done.returncode == 0 and done.stdout.isascii() == ascii, done


def test_json_is_one_object(ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any]) -> None:
    daemon(home, answers | {"losses": {"losses": [[1, 9.0], [119, 2.5]], "ranks": []}})
    code, out, _ = ctl("monitor", "--json", "--home", home)
    said = json.loads(out)
    assert [step for step, _ in said["losses"]] == [1, 119, 120], "also what was before"
    assert code == 0 and said["job"]["id"] == JOB and said["queue"] == []
    assert [event["kind"] for event in said["faults"]] == ["fault_detected", "recovery_finished"]
    assert [node["id"] for node in said["nodes"]] == ["node-0", "node-1"]


def test_a_job_that_ended_long_ago_is_asked_for(
    ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any], status: dict[str, Any]
) -> None:
    old = {**status["jobs"][1], "id": "old-1-aaaa"}

    def seen(request: dict[str, Any]) -> dict[str, Any]:
        return {**status, "jobs": [old]} if request.get("job") else status

    daemon(home, {**answers, "status": seen})
    assert json.loads(ctl("monitor", "old", "--json", "--home", home)[1])["job"] == {
        **old, "reason": "ValueError: no"
    }  # fmt: skip


def test_wrong_use(ctl: Ctl, home: Path, daemon: Daemon, answers: dict[str, Any]) -> None:
    assert ctl("monitor", "--home", home)[0] == 3
    code, out, err = ctl("monitor", "--perfomance", "--home", home)
    assert (code, out) == (2, "") and err.count("\n") == 1
    refused = {"error": "no job nope", "code": 1}
    both: Callable[[dict[str, Any]], Any] = lambda r: refused if r.get("job") else answers["status"]  # noqa: E731
    daemon(home, {**answers, "status": both})
    assert ctl("monitor", "nope", "--home", home) == (1, "", "elasticctl: no job nope\n")


def test_another_daemon_is_asked_when_one_dies(
    tmp_path: Path,
    daemon: Daemon,
    answers: dict[str, Any],
    status: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looking, "POLL_SECONDS", 0.1)
    home = tmp_path / "home"
    first = daemon(home / "node-0", {**answers, "status": {**status, "cluster": "first"}})
    daemon(home / "node-1", {**answers, "status": {**status, "cluster": "second"}})
    now = [100.0]

    def clock() -> float:
        now[0] += 0.02
        return now[0]

    lookout = Lookout(Client(home), JOB, status, follows=False, clock=clock)

    def seen(cluster: str) -> bool:
        for _ in range(100):
            lookout.turn()
            if lookout.scene.status["cluster"] == cluster and not lookout.scene.trouble:
                return True
        return False

    assert seen("first")
    first.__exit__()
    assert seen("second")
    assert [e["kind"] for e in lookout.scene.faults] == ["fault_detected", "recovery_finished"]
    lookout.stop()
    lookout._run()  # and hangs up


def test_no_daemon_at_all_is_told_and_the_last_picture_stays(
    home: Path, status: dict[str, Any]
) -> None:
    lookout = Lookout(Client(home), JOB, status, follows=False)
    lookout.turn()
    assert "no daemon has answered for 0 s: no daemon runs at" in lookout.scene.trouble
    assert lookout.scene.status == status


def _hangs_up() -> None:
    """Signals that were ignored stay so, and these tests may run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class _Terminal:
    """The other end of a pseudo-terminal in which a command runs."""

    def __init__(self, home: Path, columns: int, command: str, **environment: str) -> None:
        self._fd, inner = pty.openpty()
        self.before = termios.tcgetattr(inner)
        size = {"COLUMNS": str(columns), "LINES": "24", "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            [*PROGRAM, *command.split(), "--home", str(home)],
            stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
            env={**os.environ, **size, **environment}, preexec_fn=_hangs_up,
        )  # fmt: skip
        self._inner, self.text = inner, ""

    def until(self, told: str) -> None:
        """Read until that is there, from what was not read before."""
        deadline = time.monotonic() + SECONDS
        start = len(self.text)
        while told not in self.text[start:]:
            assert time.monotonic() < deadline, self.text[start:]
            if select.select([self._fd], [], [], 0.1)[0]:
                self.text += os.read(self._fd, 65536).decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Its exit code, once it has ended; the terminal must be as it was."""
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self._fd], [], [], 0.05)[0]:
                self.text += os.read(self._fd, 65536).decode(errors="replace")
        while select.select([self._fd], [], [], 0)[0]:
            self.text += os.read(self._fd, 65536).decode(errors="replace")
        assert termios.tcgetattr(self._inner) == self.before
        assert self.text.rfind("\x1b[?1049l") > self.text.rfind("\x1b[?1049h") >= 0
        assert self.text.rfind("\x1b[?25h") > self.text.rfind("\x1b[?25l") >= 0, "no cursor"
        assert "Traceback" not in self.text
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._fd)
        os.close(self._inner)


@contextmanager
def terminal(
    home: Path, columns: int = 80, command: str = "monitor", **environment: str
) -> Iterator[_Terminal]:
    opened = _Terminal(home, columns, command, **environment)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.process
@pytest.mark.parametrize("columns", [60, 80])
def test_keys_in_a_terminal(
    home: Path, daemon: Daemon, answers: dict[str, Any], columns: int
) -> None:
    daemon(home, answers)
    with terminal(home, columns) as seen:
        seen.until("regroup 1.25 s")
        seen.press(b"\t")
        seen.until("ValueError: no")
        seen.press(b"\x1b[A")
        seen.until("(job 1 of 2)")
        seen.press(b"l")
        seen.until("hello from zero")
        seen.press(b"q")
        assert seen.end() == 0


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(
    home: Path, daemon: Daemon, answers: dict[str, Any], number: int
) -> None:
    daemon(home, answers)
    with terminal(home, NO_COLOR="1") as seen:
        seen.until("regroup 1.25 s")
        seen.process.send_signal(number)
        assert seen.end() == 130
        assert "\x1b[32m" not in seen.text and "\x1b[33m" not in seen.text


@pytest.mark.process
def test_a_dumb_terminal_gets_one_picture(
    home: Path, daemon: Daemon, answers: dict[str, Any]
) -> None:
    daemon(home, answers)
    with terminal(home, TERM="dumb") as seen:
        seen.until("regroup 1.25 s")
        assert seen.process.wait(SECONDS) == 0 and "\x1b" not in seen.text


@pytest.mark.process
@pytest.mark.parametrize("columns", [60, 100])
def test_the_list_of_jobs_is_watched_whichever_daemon_dies(
    tmp_path: Path, daemon: Daemon, answers: dict[str, Any], columns: int
) -> None:
    home = tmp_path / "home"
    first = daemon(home / "node-0", answers)
    running, failed = answers["status"]["jobs"]
    with terminal(home, columns, "jobs --watch") as seen:
        seen.until("1 running, 1 failed")
        seen.until(failed["id"])
        first.__exit__()
        seen.until("no daemon runs at")
        ended = {**running, "state": "finished", "ended": 5.0}
        daemon(home / "node-1", {"status": {**answers["status"], "jobs": [ended]}})
        seen.until("1 finished")
        seen.press(b"q")
        assert seen.end() == 0


@pytest.mark.process
def test_a_dumb_terminal_gets_the_list_of_jobs_once(
    home: Path, daemon: Daemon, answers: dict[str, Any]
) -> None:
    daemon(home, answers)
    with terminal(home, 80, "jobs --watch", TERM="dumb") as seen:
        seen.until("digits-2-aaaa")
        assert seen.process.wait(SECONDS) == 0 and "\x1b" not in seen.text


@pytest.mark.parametrize(("width", "height"), [(40, 6), (80, 10), (200, 24)])
def test_a_watched_list_has_as_many_lines_as_there_is_room(width: int, height: int) -> None:
    jobs = [{"id": f"job-{number}", "state": "queued", "steps": 5} for number in range(30)]
    for trouble in ("", "no daemon runs at /a/long/folder" * 9):
        lines = [
            "".join(text for text, _ in line) for line in picture(jobs, trouble, width, height, 0.0)
        ]
        assert len(lines) <= height and max(map(len, lines)) <= width
        assert "30 queued" in lines[0] and "more lines" in lines[-1]
    states = [{"id": "j" * 50, "state": state} for state in ("queued", "parked", "finished")] * 12
    text = "\n".join("".join(t for t, _ in line) for line in picture(states, "", 33, 50, 0.0))
    assert max(map(len, text.split("\n"))) <= 33 and "j" * 50 in text.replace("\n", "")
    assert "12 queued, 12 parked, 12 finished" in text.replace("\n", " ")
    few = picture(jobs[:1], "", width, height, 0.0)
    assert few[-1] == [("q leaves", "dim")]
    assert picture([], "", width, height, 0.0)[0][0][0].endswith("no jobs yet")
