"""pause, resume, forget: what is asked and what is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .test_commands import Ctl, Daemon


@pytest.mark.parametrize(
    ("command", "state"), [("pause", "paused"), ("resume", "queued"), ("forget", "forgotten")]
)
def test_the_answer_is_the_state(
    ctl: Ctl, home: Path, daemon: Daemon, command: str, state: str
) -> None:
    fake = daemon(home, {command: {"id": "j", "state": state}})
    assert ctl(command, "j", "--home", home) == (0, f"j {state}\n", "")
    assert json.loads(ctl(command, "j", "--home", home, "--json")[1])["state"] == state
    assert fake.requests[0] == {"do": command, "job": "j"}


@pytest.mark.parametrize("command", ["pause", "resume", "forget"])
def test_an_unknown_job_is_a_failure(ctl: Ctl, home: Path, daemon: Daemon, command: str) -> None:
    daemon(home, {command: {"error": "no job x", "code": 1}})
    assert ctl(command, "x", "--home", home) == (1, "", "elasticctl: no job x\n")


@pytest.mark.parametrize(("command", "state"), [("drain", "draining"), ("undrain", "alive")])
def test_nodes_are_drained(ctl: Ctl, home: Path, daemon: Daemon, command: str, state: str) -> None:
    fake = daemon(home, {command: {"id": "n", "state": state}})
    assert ctl(command, "n", "--home", home) == (0, f"n {state}\n", "")
    assert fake.requests[0] == {"do": command, "node": "n"}


def test_jobs_show_their_place_in_the_queue(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    job = {"id": "j", "state": "queued", "step": 0, "steps": 9, "queue_position": 2}
    daemon(home, {"status": {"jobs": [job]}})
    assert "queued (2.)" in ctl("jobs", "--home", home)[1]
