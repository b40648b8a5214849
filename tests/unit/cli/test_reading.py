"""Choosing what is read: jobs by state, logs by time, folders and ends; and errors as JSON."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from elasticd.checkpoints import export
from elasticd.checkpoints.codec import METADATA_KEY, write_shard
from elasticd.cli.moments import since
from elasticd.cli.output import in_order
from elasticd.errors import UsageError
from tests.integration.otheraccount import need_root
from tests.nobody import NOBODY
from tests.nofile import SORTS, no_file

from .test_commands import Ctl, Daemon


def ids(out: str) -> list[str]:
    return [job["id"] for job in json.loads(out)["jobs"]]


JOBS = [
    {"id": "a", "state": "finished", "ended": 5.0, "step": 1, "steps": 1},
    {"id": "b", "state": "failed", "ended": 9.0, "step": 1, "steps": 1},
    {"id": "c", "state": "running", "step": 1, "steps": 1},
    {"id": "d", "state": "cancelled", "ended": 7.0, "step": 1, "steps": 1},
    {"id": "e", "state": "queued", "queue_position": 1, "step": 0, "steps": 1},
    {"id": "f", "state": "failed", "step": 0, "steps": 1},
]


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ([], "cebdaf"),
        (["--last", "2"], "cebd"),
        (["--last", "0"], "ce"),
        (["--state", "failed"], "bf"),
        (["--state", "failed", "--last", "1"], "b"),
        (["--state", "queued", "--state", "cancelled"], "ed"),
        (["--state", "paused"], ""),
    ],
)
def test_jobs_are_chosen(
    ctl: Ctl, home: Path, daemon: Daemon, options: list[str], listed: str
) -> None:
    daemon(home, {"status": {"jobs": JOBS}})
    assert ids(ctl("jobs", *options, "--json", "--home", home)[1]) == list(listed)
    out = ctl("jobs", *options, "--home", home)[1]
    if listed:
        assert [line[0] for line in out.splitlines()[1:]] == list(listed)
    else:
        assert out == "no such jobs\n"


def test_who_has_the_turn_is_listed_above_those_that_wait() -> None:
    told: list[tuple[str, str, str, float]] = [
        ("a", "paused", "queue_position", 0),
        ("b", "queued", "queue_position", 2),
        ("c", "finished", "ended", 5),
        ("d", "queued", "queue_position", 1),
        ("e", "parked", "queue_position", 0),
        ("f", "cancelled", "ended", 7),
        ("g", "running", "queue_position", 0),
        ("h", "recovering", "queue_position", 0),
        ("i", "failed", "ended", 0),
        ("j", "failed", "ended", 0),
    ]
    jobs: list[dict[str, Any]] = [
        {"id": name, "state": state, key: at or None} for name, state, key, at in told
    ]
    dice = random.Random(7)
    for _ in range(50):
        dice.shuffle(jobs)
        listed = "".join(job["id"] for job in in_order(jobs))
        assert listed[2:8] == "edbafc"
        # Those of which nothing else is known stay in the daemon's order.
        tied = [job["id"] for job in jobs if job["id"] in {*"ghij"}]
        assert listed[:2] == "".join(name for name in tied if name in "gh")
        assert listed[8:] == "".join(name for name in tied if name in "ij")


def test_a_queued_job_of_high_priority_is_listed_below_the_one_that_trains(
    ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    jobs = [{"id": "q", "state": "queued", "queue_position": 1}, {"id": "r", "state": "running"}]
    view = {"epoch": 1, "leader": "n", "members": ["n"]}
    daemon(home, {"status": {"cluster": "c", "view": view, "nodes": [], "jobs": jobs}})
    assert ids(ctl("jobs", "--json", "--home", home)[1]) == ["r", "q"]
    for command in ("jobs", "status"):
        out = ctl(command, "--home", home)[1].splitlines()
        assert [line[0] for line in out[-2:]] == ["r", "q"]


def test_a_state_that_there_is_not_is_named(ctl: Ctl, home: Path) -> None:
    code, _, err = ctl("jobs", "--state", "runing", "--home", home)
    assert code == 2 and "not runing" in err and "recovering" in err


def test_logs_are_asked_for(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    fake = daemon(home, {"logs": [{"end": True}], "status": {"jobs": []}})
    assert ctl("logs", "j", "--tail", "5", "--since", "1000", "-f", "--home", home)[0] == 0
    assert fake.requests[-1] == {
        "do": "logs", "job": "j", "follow": True, "tail": 5, "since": 1000.0, "past": {}
    }  # fmt: skip
    assert ctl("logs", "j", "--raw", "--json", "--home", home)[0] == 2


def test_logs_that_are_followed_go_on_at_the_next_daemon(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    first = daemon(home / "node-0", {"status": status})
    said = {"rank": 1, "node": "node-1", "text": " 2\n", "at": 14}
    second = daemon(home / "node-1", {"status": status, "logs": [said, {"end": True}]})

    def once(request: dict[str, Any]) -> list[dict[str, Any]]:
        first.answers["status"] = []
        place = {"rank": 0, "node": "node-0", "text": "", "at": 3}
        return [place, {"rank": 1, "node": "node-1", "text": "loss 1\nloss", "at": 11}]

    first.answers["logs"] = once
    code, out, _ = ctl("logs", "j", "-f", "--home", home)
    assert (code, out) == (0, "[1] loss 1\n[1] loss 2\n")
    asked = [each for each in second.requests if each["do"] == "logs"]
    assert [each["past"] for each in asked] == [{"node-0": 3, "node-1": 11}]


def test_logs_end_where_the_next_daemon_knows_no_places(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any]
) -> None:
    first = daemon(home / "node-0", {"status": status})
    again = [{"rank": 0, "node": "a", "text": "one\ntwo\n"}, {"end": True}]
    daemon(home / "node-1", {"status": status, "logs": again})

    def once(request: dict[str, Any]) -> list[dict[str, Any]]:
        first.answers["status"] = []
        return [{"rank": 0, "node": "a", "text": "one\n", "at": 4}]

    first.answers["logs"] = once
    code, out, err = ctl("logs", "j", "-f", "--home", home)
    assert (code, out) == (3, "[0] one\n") and "earlier version" in err


@pytest.mark.parametrize("more", [[], ["--json"], ["--raw"]])
def test_what_is_left_out_of_a_log_is_said_on_stderr(
    more: list[str], ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    cut = {"rank": 0, "node": "node-0", "left_out": "9 bytes of it are gone"}
    text = {"rank": 0, "node": "node-0", "text": "left\n", "data": b"left\n"}
    daemon(home, {"logs": [cut, text, {"end": True}]})
    code, out, err = ctl("logs", "j", "--home", home, *more)
    assert code == 0 and "left" in out and "gone" not in out
    assert err == "the log of node-0 is not whole: 9 bytes of it are gone\n"


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"state": "queued", "queue_position": 2}, "nothing yet: it is queued (2.)"),
        ({"state": "parked", "reason": "2 of 3 are here"}, "yet: it is parked: 2 of 3 are here"),
        ({"state": "running"}, "has printed nothing yet: it is running"),
        ({"state": "cancelled"}, "has printed nothing: it was cancelled"),
    ],
)
def test_a_job_that_has_printed_nothing_is_told(
    ctl: Ctl, home: Path, daemon: Daemon, job: dict[str, Any], said: str
) -> None:
    fake = daemon(home, {"logs": [{"end": True}], "status": {"jobs": [{"id": "j-1", **job}]}})
    code, out, err = ctl("logs", "j", "--home", home)
    assert (code, out) == (0, "") and err.startswith("j-1 ") and err.endswith(f"{said}\n")
    code, out, err = ctl("logs", "j", "--rank", "0", "--json", "--home", home)
    assert (code, out) == (0, "") and err.startswith("rank 0 of j-1 ")
    assert ctl("logs", "j", "--grep", "loss", "--home", home) == (0, "", "")
    fake.answers["logs"] = [{"rank": 0, "node": "n", "text": "x\n", "at": 2}, {"end": True}]
    assert ctl("logs", "j", "--home", home) == (0, "[0] x\n", "")
    code, out, err = ctl("logs", "j", "-f", "--home", home)
    assert (code, out) == (0, "[0] x\n")
    if job["state"] in ("queued", "parked"):
        assert err.startswith(f"j-1 is {job['state']}") and err.endswith("comes when it runs\n")
    else:
        assert err == ""


def test_logs_of_a_time_to_come_say_why_there_are_none(
    ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    daemon(home, {"logs": [{"end": True}]})
    code, out, err = ctl("logs", "j", "--since", "2999-01-01", "--home", home)
    assert (code, out) == (0, "")
    assert err == "--since 2999-01-01 is in the future: nothing has been printed since then\n"


NOON = time.mktime((2026, 1, 31, 12, 0, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOON - 90),
        ("1.5m", NOON - 90),
        ("2h", NOON - 7200),
        ("3d", NOON - 3 * 86400),
        ("11:30", NOON - 1800),
        ("13:00:01", NOON + 3601 - 86400),
        ("2026-01-31 11:00", NOON - 3600),
        ("2026-01-31T11:00:00", NOON - 3600),
        ("1700000000.5", 1700000000.5),
        (None, None),
    ],
)
def test_moments(text: str | None, moment: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "")
    assert since(text, NOON) == moment


@pytest.mark.parametrize(
    ("now", "text", "moment"),
    [
        # Clocks are set back at 03:00 (01:00 UTC) of 25 October.
        ("2026-10-25 09:00", "14:30", "2026-10-24 12:30"),
        ("2026-10-25 09:00", "02:30", "2026-10-25 01:30"),
        ("2026-10-25 01:10", "02:30", "2026-10-25 00:30"),
        ("2026-10-25 00:10", "02:30", "2026-10-24 00:30"),
        # They are set forward at 02:00 (01:00 UTC) of 29 March.
        ("2026-03-29 08:00", "14:30", "2026-03-28 13:30"),
        ("2026-03-29 08:00", "08:00", "2026-03-29 06:00"),
    ],
)
def test_a_time_of_day_where_clocks_are_changed(
    now: str, text: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is local, what it is compared with UTC."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    found = since(text, datetime.fromisoformat(f"{now}+00:00").timestamp())
    assert found is not None
    assert datetime.fromtimestamp(found, UTC) == datetime.fromisoformat(f"{moment}+00:00")


@pytest.mark.parametrize("text", ["", "x", "5", "25:00", "-5m", "9" * 40, "10 m", "2026-13-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    if text == "5":
        assert since(text) == 5.0  # a Unix time, if a strange one
        return
    with pytest.raises(UsageError, match="is no time"):
        since(text)


# --- submit FOLDER --------------------------------------------------------------------------------


def test_a_folder_is_submitted(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, job_folder: Callable[[], Path]
) -> None:
    folder = job_folder()
    fake = daemon(home, {"submit": {"id": "j"}})
    assert ctl("submit", folder, "--home", home) == (0, "j\n", "")
    assert ctl("submit", folder / "job.toml", "--home", home) == (0, "j\n", "")
    assert fake.archives[0] == fake.archives[1]
    assert fake.requests[0] == fake.requests[1]


def test_a_folder_without_a_description_is_refused(ctl: Ctl, home: Path, tmp_path: Path) -> None:
    code, _, err = ctl("submit", tmp_path, "--home", home)
    assert code == 2 and f"{tmp_path / 'job.toml'}" in err and err.count("\n") == 1


@pytest.fixture
def job_folder(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        folder = tmp_path / "job"
        folder.mkdir()
        (folder / "train.py").write_text("print('hello')")
        (folder / "job.toml").write_text(
            '[job]\nname = "first"\nentrypoint = "train.py"\n'
            "[batch]\nglobal = 8\nmicro = 8\n[train]\nsteps = 1\n"
        )
        return folder

    return make


# --- wait -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 1), ("cancelled", 1)])
def test_wait_exits_as_the_job_did(
    ctl: Ctl, home: Path, daemon: Daemon, status: dict[str, Any], state: str, code: int
) -> None:
    looks = iter(["running", state])
    full = status["jobs"][0]["id"]

    def seen(_: dict[str, Any]) -> list[dict[str, Any]]:
        job = {**status["jobs"][0], "state": next(looks, state)}
        return [{**status, "jobs": [job]}]

    fake = daemon(home, {"status": seen, "events": [{"end": True}]})
    exited, out, err = ctl("wait", "byte", "--json", "--home", home)
    assert (exited, err) == (code, "")
    assert json.loads(out)["state"] == state
    asked = [request["job"] for request in fake.requests if request["do"] == "status"]
    assert asked == ["byte", full], "a beginning of an id may fit several jobs later"


def test_wait_says_at_once_that_no_daemon_answers(ctl: Ctl, home: Path) -> None:
    exited, _, err = ctl("wait", "byte", "--home", home)
    assert exited == 3 and "no daemon" in err


# --- errors as JSON -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["jobs", "--json"], 3),
        (["--json", "jobs"], 3),
        (["--json", "nope"], 2),
        (["logs", "--json"], 2),
        (["jobs", "--json", "--nope"], 2),
        (["submit", "nothing.toml", "--json"], 2),
        (["outputs", "j", "--out", "/nope/x", "--json"], 2),
    ],
)
def test_an_error_is_json_too(arguments: list[str], code: int, ctl: Ctl, home: Path) -> None:
    at = 1 if arguments[0] == "--json" else len(arguments)
    given = [*arguments[:at], "--home", str(home), *arguments[at:]]
    exited, out, err = ctl(*given)
    said = json.loads(out)
    assert exited == code and said["exit"] == code
    assert err == f"elasticctl: {said['error']}\n"


def test_what_a_daemon_refuses_is_json_too(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"cancel": {"error": "no job x", "code": 1}})
    code, out, err = ctl("cancel", "x", "--home", home, "--json")
    assert (code, json.loads(out)) == (1, {"error": "no job x", "exit": 1})
    assert err == "elasticctl: no job x\n"


@pytest.mark.parametrize("arguments", [["jobs"], ["events", "-f"], ["cancel", "x"], ["wait", "x"]])
@pytest.mark.parametrize("json_given", [False, True])
def test_an_interrupt_is_json_too(
    arguments: list[str], json_given: bool, ctl: Ctl, home: Path, daemon: Daemon
) -> None:
    def strike(_: dict[str, Any]) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        return {"error": "came too late", "code": 1}

    daemon(home, dict.fromkeys(("status", "events", "cancel"), strike))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code, out, _ = ctl(*arguments, "--home", home, *(["--json"] if json_given else []))
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 130
    if json_given:
        assert json.loads(out) == {"error": "interrupted", "exit": 130}
    else:
        assert out.strip() == ""


def test_behind_two_dashes_json_is_a_name(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    daemon(home, {"cancel": {"error": "no job --json", "code": 1}})
    assert ctl("cancel", "--home", home, "--", "--json")[1] == ""


# --- exports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", ["file", "folder", "link", "optimizer"])
def test_an_export_does_not_overwrite_unasked(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, into: str
) -> None:
    out = there = tmp_path / "model.safetensors"
    more: list[str] = []
    match into:
        case "folder":
            out = tmp_path / "folder"
            out.mkdir()
            there = out / "model.safetensors"
        case "optimizer":
            there = tmp_path / "model.optimizer.safetensors"
            more = ["--optimizer"]
    if into == "link":
        (tmp_path / "file").touch()
        there.symlink_to("file")
    else:
        there.write_text("mine")
    fake = daemon(home, {"checkpoints_open": {"error": "asked", "code": 1}})
    command = ["checkpoints", "export", "j", "--out", out, *more, "--home", home]
    code, _, err = ctl(*command)
    assert code == 2 and f"{there}: is there already" in err and fake.requests == []
    code, _, err = ctl(*command, "--overwrite")
    assert (code, err) == (1, "elasticctl: asked\n")
    assert into == "link" or there.read_text() == "mine"


@pytest.mark.parametrize("sort", SORTS)
def test_an_export_replaces_files_alone(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, sort: str
) -> None:
    fake = daemon(home, {"checkpoints_open": {"error": "asked", "code": 1}})
    with no_file(tmp_path / "out", sort) as unchanged:
        code, out, err = ctl(
            "checkpoints", "export", "j", "--out", tmp_path / "out", "--overwrite", "--home", home
        )
        assert (code, out, fake.requests) == (2, "", []) and SORTS[sort] in err
        assert err.count("\n") == 1 and unchanged()


def test_root_exports_no_file_of_another_account_than_the_daemons(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path
) -> None:
    need_root()
    shard, out = tmp_path / "shard", tmp_path / "out.safetensors"
    said = {METADATA_KEY: json.dumps({"user": {"optimizer": {}}})}
    digest = write_shard(shard, {"model/a": mx.zeros((2,))}, said).digest
    ready = {
        "path": "is to be taken",  # by the fake
        "files": [[str(shard), digest]],
        "checkpoint": {"step": 1, "lineage": "ab", "digest": "cd"},
    }
    daemon(home, {"checkpoints_open": ready}).pose()
    command = ["checkpoints", "export", "j", "--out", out, "--home", home]
    code, _, err = ctl(*command)
    assert code == 1 and "shard: the daemon, which runs as nobody, names this file" in err
    assert not out.exists()
    os.chown(shard, NOBODY, -1)
    assert ctl(*command)[0] == 0 and out.exists()


def test_the_files_of_an_export(tmp_path: Path) -> None:
    assert export.targets(tmp_path, optimizer=False) == [tmp_path / "model.safetensors"]
    assert export.targets(tmp_path / "x.st", optimizer=True) == [
        tmp_path / "x.st", tmp_path / "x.optimizer.safetensors"
    ]  # fmt: skip


def test_a_manifest_that_nobody_can_read_fails_verify(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    head = {"replicas": 0, "silent": {}, "never_completed": []}
    torn = [{"node": "node-0", "step": 10}]
    for unreadable in ([], torn):
        daemon(home, {"checkpoints_verify": [{**head, "unreadable": unreadable}, {"end": True}]})
        code, out, _ = ctl("checkpoints", "verify", "j", "--home", home)
        assert code == len(unreadable)
        assert ("node-0: step 10: a checkpoint whose manifest" in out) == bool(unreadable)
