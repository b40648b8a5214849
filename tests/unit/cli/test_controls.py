"""pause, resume, forget: what is asked and what is shown."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

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


BAD = os.fsdecode(b"x\xff")


@pytest.mark.parametrize(
    "command",
    [
        ["status", BAD], ["drain", BAD], ["undrain", BAD], ["logs", BAD],
        ["nodes", "forget", BAD], ["cancel", BAD], ["checkpoints", "list", BAD],
        ["chaos", "kill", BAD, "--rank", "0"], ["chaos", "link", BAD, "b"],
    ],
)  # fmt: skip
def test_an_argument_that_is_not_utf8_is_wrong_usage(
    ctl: Ctl, home: Path, daemon: Daemon, command: list[str]
) -> None:
    daemon(home, {})
    code, out, err = ctl(*command, "--home", home)
    assert (code, out, err) == (2, "", "elasticctl: an argument is not UTF-8\n")


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (["configure", "--failure-domain", BAD], "--failure-domain"),
        (["configure", "--set", f'notify.job_failed=["/bin/sh", "{BAD}"]'], "notify.job_failed"),
        (["submit", "{job}", "--set", f'job.env.A="{BAD}"'], "job.env.A"),
        (["submit", "{job}", "--set", f'job.args=["{BAD}"]'], "job.args[0]"),
    ],
)
def test_a_setting_that_is_not_utf8_is_named(
    ctl: Ctl, home: Path, tmp_path: Path, command: list[str], key: str
) -> None:
    home.mkdir(exist_ok=True)
    (tmp_path / "train.py").touch()
    job = tmp_path / "job.toml"
    job.write_text('[job]\nname = "a"\nentrypoint = "train.py"\n')
    code, out, err = ctl(*(each.replace("{job}", str(job)) for each in command), "--home", home)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert key in err and "internal" not in err and [*home.iterdir()] == []


def test_a_node_takes_part_again(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    fake = daemon(home, {"undrain": {"id": "n", "state": "alive"}})
    assert ctl("undrain", "n", "--home", home) == (0, "n alive\n", "")
    assert fake.requests[0] == {"do": "undrain", "node": "n"}


def drained(home: Path, daemon: Daemon, *sights: tuple[str, str, list[str]]) -> Any:
    """A daemon with a drained node n: its states, and a job's states and members, in turn."""
    left = list(sights)

    def status(_: dict[str, Any]) -> list[dict[str, Any]]:
        node, job, members = left.pop(0) if len(left) > 1 else left[0]
        ranks = [{"rank": at, "node": name} for at, name in enumerate(members)]
        nodes = [{"id": "n", "state": node}, {"id": "n2", "state": "alive"}]
        return [{"nodes": nodes, "jobs": [{"id": "j", "state": job, "ranks": ranks}]}]

    return daemon(home, {"drain": {"id": "n", "state": "draining"}, "status": status})


@pytest.mark.parametrize(
    ("job", "members", "note"),
    [
        ("running", ["n2"], "may be switched off"),
        ("finished", [], "may be switched off"),
        ("parked", [], "may be switched off"),
        ("running", ["n2", "n"], "still has a rank of j"),
        ("running", [], "wait until j has regrouped"),
        ("recovering", [], "wait until j has regrouped"),
    ],
)
def test_a_drained_node_says_when_it_may_be_switched_off(
    ctl: Ctl, home: Path, daemon: Daemon, job: str, members: list[str], note: str
) -> None:
    fake = drained(home, daemon, ("draining", job, members))
    code, out, _ = ctl("drain", "n", "--home", home)
    assert code == 0 and out.startswith(f"n draining: {note}\n")
    assert fake.requests[0] == {"do": "drain", "node": "n"}
    told = json.loads(ctl("drain", "n", "--json", "--home", home)[1])
    assert told["may_switch_off"] is (note == "may be switched off") and told["why"] == note
    listed = ctl("nodes", "--home", home)[1].splitlines()
    assert listed[1].endswith(note) and listed[0].endswith("NOTE") and listed[2].endswith("-")


def test_of_a_node_that_is_dead_drain_says_when_that_counts(
    ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    fake = drained(home, daemon, ("dead", "running", []))
    fake.answers["drain"] = {"id": "n", "state": "dead"}
    said = "n dead: it is drained once it answers\n"
    assert ctl("drain", "n", "--home", home)[:2] == (0, said)
    code, out, err = ctl("drain", "n", "--wait", "--home", home)
    assert (code, out) == (1, said) and "n is dead" in err


def test_drain_waits_until_the_ranks_have_left(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    busy, free = ("draining", "running", ["n"]), ("draining", "running", ["n2"])
    drained(home, daemon, busy, busy, free)
    code, out, _ = ctl("drain", "n", "--wait", "--home", home)
    assert (code, out.splitlines()) == (
        0,
        ["n draining: still has a rank of j", "n draining: may be switched off"],
    )


def test_who_interrupts_the_wait_is_told_that_the_node_stays_drained(
    ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    fake = drained(home, daemon, ("draining", "running", ["n"]))
    look, looks = fake.answers["status"], iter(range(9))

    def strike(request: dict[str, Any]) -> Any:
        if next(looks) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return look(request)

    fake.answers["status"] = strike
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, _, err = ctl("drain", "n", "--wait", "--home", home)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130 and "n stays drained; 'elasticctl nodes' says" in err
    assert "'elasticctl undrain n'" in err


def test_a_node_that_is_not_drained_any_more_is_not_waited_for(
    ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    drained(home, daemon, ("draining", "running", ["n"]), ("alive", "running", ["n"]))
    code, _, err = ctl("drain", "n", "--wait", "--home", home)
    assert code == 1 and "n is alive" in err


def test_jobs_show_their_place_in_the_queue(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    job = {"id": "j", "state": "queued", "step": 0, "steps": 9, "queue_position": 2}
    daemon(home, {"status": {"jobs": [job]}})
    assert "queued (2.)" in ctl("jobs", "--home", home)[1]


class Typed(io.StringIO):
    """A terminal at which somebody has typed that."""

    def isatty(self) -> bool:
        return True


IRREVOCABLE: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("forget", ["forget", "dig"], {"do": "forget", "job": "dig"}, "Remove digits-2-aaaa and all"),
    (
        "put_out_node",
        ["cluster", "revoke", "node-2"],
        {"do": "put_out_node", "node": "node-2"},
        "node-2 out",
    ),
]


@pytest.mark.parametrize(("do", "command", "request_", "question"), IRREVOCABLE)
def test_what_cannot_be_undone_is_asked_at_a_terminal(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    do: str, command: list[str], request_: dict[str, Any], question: str,
) -> None:  # fmt: skip
    nodes = [*status["nodes"], {**status["nodes"][0], "id": "node-2"}]
    done = {"id": "it", "state": "gone"}
    fake = daemon(home, {"status": {**status, "nodes": nodes}, do: done})

    def asked() -> list[dict[str, Any]]:
        found = [each for each in fake.requests if each["do"] == do]
        fake.requests.clear()
        return found

    for answer in ("n\n", "\n", ""):
        monkeypatch.setattr(sys, "stdin", Typed(answer))
        code, out, err = ctl(*command, "--home", home)
        assert (code, out.strip(), question in err, asked()) == (130, "", True, [])
    for typed in (["--yes"], ["--json"], []):
        monkeypatch.setattr(sys, "stdin", Typed("" if typed else "y\n"))
        code, _, err = ctl(*command, "--home", home, *typed)
        assert (code, question in err, asked()) == (0, not typed, [request_])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert ctl(*command, "--home", home)[0] == 0 and asked() == [request_], "a script says it"


def test_what_a_prune_would_remove_is_asked_at_a_terminal(
    ctl: Ctl, home: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"step": 5, "bytes": 2048}
    told = {"removed": [row, row], "kept": [row], "failures": [], "silent": {}}
    fake = daemon(home, {"checkpoints_prune": told})

    def pruned(stdin: io.StringIO, *more: str) -> tuple[int, bool, list[bool]]:
        monkeypatch.setattr(sys, "stdin", stdin)
        fake.requests.clear()
        code, _, err = ctl("checkpoints", "prune", "j", "--home", home, *more)
        question = "Remove 2 checkpoints (4.0 KiB) from all nodes?" in err
        return code, question, [each["dry_run"] for each in fake.requests]

    assert pruned(Typed("n\n")) == (130, True, [True])
    assert pruned(Typed("y\n")) == (0, True, [True, False])
    assert pruned(Typed(""), "--dry-run") == (0, False, [True])
    assert pruned(Typed(""), "--yes") == (0, False, [False])
    assert pruned(io.StringIO()) == (0, False, [False]), "a script is not asked"
    told["removed"] = []
    assert pruned(Typed("")) == (0, False, [True, False]), "nothing is lost"


def test_disk_names_the_command_for_what_no_record_names(
    ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    found = {
        "node": "n", "home": str(home), "bytes": 4096, "free_bytes": 1, "total_bytes": 2,
        "kinds": [{"kind": "logs", "bytes": 4096}], "other_jobs": 0, "other_bytes": 0,
        "jobs": [{"job": "old-1-aaaa", "bytes": 4096, "logs": 4096}],
    }  # fmt: skip
    fake = daemon(home, {"disk": found})
    assert ctl("disk", "--home", home)[2] == "", "an earlier daemon doesn't say"
    fake.answers["disk"] = {**found, "strays": ["old-1-aaaa"]}
    code, _, err = ctl("disk", "--home", home)
    assert code == 0 and f"'elasticctl forget old-1-aaaa --home {home}' removes" in err
