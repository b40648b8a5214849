"""Commands that follow something say that no daemon answers, go on when one does, and give up."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from elasticd.cli import silence
from elasticd.cli.silence import SilentDaemons
from elasticd.client.connection import HungUp, NobodyListens
from elasticd.errors import ElasticdError, NoDaemonError, ProtocolError
from tests.unit.client.fake_daemon import FakeDaemon

from .test_commands import PROGRAM

SAID = "no daemon answers; trying again for 30 s\n"
AGAIN = "a daemon answers again\n"
FOLLOW = [["wait", "j"], ["events", "j", "-f"], ["logs", "j", "-f"], ["drain", "n", "--wait"]]


@pytest.mark.process
@pytest.mark.parametrize("command", FOLLOW, ids=lambda command: command[0])
def test_it_is_said_that_no_daemon_answers(
    command: list[str], home: Path, status: dict[str, Any]
) -> None:
    seen, looks = threading.Event(), iter(range(99))

    def look(request: dict[str, Any]) -> list[dict[str, Any]]:
        if next(looks):  # the first one has been answered
            seen.set()
        ranks = [{"rank": 0, "node": "n"}]
        job = {**status["jobs"][0], "id": "j", "ranks": ranks}
        node = {"id": "n", "state": "draining"}
        return [{**status, "nodes": [node], "jobs": [job]}]

    def print_(request: dict[str, Any]) -> list[dict[str, Any]]:
        seen.set()
        return [{"rank": 0, "node": "n", "text": "x\n", "at": 2}]

    def happen(request: dict[str, Any]) -> list[dict[str, Any]]:
        if command[0] == "events":
            seen.set()
        return [{"time": 1.0, "kind": "job_submitted", "job": "j"}]

    drained = {"id": "n", "state": "draining"}
    before = {"status": look, "logs": print_, "events": happen, "drain": drained}
    end = [{"end": True}]
    printed = [{"rank": 0, "node": "n", "text": "y\n", "at": 4}, *end]
    job = {**status["jobs"][0], "id": "j", "state": "finished", "ranks": []}
    after = {**status, "nodes": [drained], "jobs": [job]}
    with FakeDaemon(home, before):
        program = subprocess.Popen(
            [*PROGRAM, *command, "--home", str(home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert seen.wait(30)
        assert program.stdout is not None and program.stderr is not None
        if command[0] != "wait":
            assert program.stdout.readline()
    with program:
        assert program.stderr.readline() == SAID
        with FakeDaemon(home, {"status": after, "events": end, "logs": printed}):
            assert (program.stderr.read(), program.wait(30)) == (AGAIN, 0)


HUNG, GONE = HungUp("it hung up"), NobodyListens(Path("/h"))
STOPPED = NoDaemonError("it is stopped")


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ([HUNG], ""),  # another one may answer
        ([ProtocolError("no frame")], ""),
        ([HUNG, HUNG, HUNG], SAID),
        ([GONE, GONE], SAID),
        ([STOPPED, HUNG], "it is stopped; trying again for 30 s\n"),
    ],
)
def test_it_is_said_once_and_of_a_daemon_that_ended_later(
    errors: list[ElasticdError],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silence, "POLL_SECONDS", 0.0)
    away = SilentDaemons(answered=True)
    for _ in range(2):
        for error in errors:
            away.bear(error)
        assert capsys.readouterr().err == said
        away.heard()
        assert capsys.readouterr().err == (AGAIN if said else "")


def test_it_ends() -> None:
    with pytest.raises(NoDaemonError, match=r"hung up; the job goes on$"):
        SilentDaemons(answered=False).bear(HUNG, "; the job goes on")
    away = SilentDaemons(answered=True, seconds=0.1)
    away.bear(HUNG)
    with pytest.raises(NoDaemonError, match="hung up"):
        away.bear(HUNG)
