"""elasticctl submit: what is refused before anything is sent, what is sent, what is waited for."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd import archive
from elasticd.settings.job import JobSpec

Ctl = Callable[..., tuple[int, str, str]]
Daemon = Callable[..., Any]

WRONG: dict[str, Any] = tomllib.loads(
    (Path(__file__).parents[1] / "settings" / "wrong_jobs.toml").read_text(encoding="utf-8")
)
BASE: str = WRONG["base"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("print('hello')")
    (folder / "job.toml").write_text(BASE)
    return folder


@pytest.mark.parametrize("name", WRONG["case"])
def test_a_wrong_job_is_one_line_and_queues_nothing(
    name: str, folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    (folder / "data").mkdir()
    (folder / "out.py").symlink_to("/etc/hosts")
    case = WRONG["case"][name]
    lines = BASE.splitlines()
    for number, line in case.get("edit", {}).items():
        lines[int(number) - 1] = line
    (folder / "job.toml").write_text("\n".join(lines) + "\n")
    fake = daemon(home, {"submit": {"id": "never"}})
    settings = [f"--set={assignment}" for assignment in case.get("set", ())]
    code, out, err = ctl("submit", "job.toml", *settings, "--home", home)
    assert (code, out, err) == (2, "", f"elasticctl: {case['error']}\n")
    assert fake.requests == []


@pytest.mark.parametrize(
    ("ignored", "error"),
    [
        ("train.py\n", 'job.toml: job.entrypoint: "train.py" is not shipped; see .elasticdignore'),
        ("", "out: is a link that leaves the job's folder"),
    ],
)
def test_a_folder_that_cannot_be_shipped(
    ignored: str, error: str, folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    (folder / ".elasticdignore").write_text(ignored)
    if not ignored:
        (folder / "out").symlink_to("/")
    fake = daemon(home, {"submit": {"id": "never"}})
    assert ctl("submit", "job.toml", "--home", home) == (2, "", f"elasticctl: {error}\n")
    assert fake.requests == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train.py", "is a script: submit the job.toml that names it, as entrypoint = "),
        (
            "my.ipynb",
            "is a notebook: make a script of it (jupyter nbconvert --to script my.ipynb). Then"
            " submit the job.toml that names it, as entrypoint = ",
        ),
    ],
)
def test_a_script_in_place_of_a_job_is_told_by_what_it_is(
    name: str, said: str, folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    (folder / name).write_text("{}")
    fake = daemon(home, {"submit": {"id": "never"}})
    script = f'"{Path(name).stem}.py" in [job]: elasticctl submit job.toml'
    code, out, err = ctl("submit", name, "--home", home)
    shown = f"elasticctl: {name}: {said}{script} (docs/writing-jobs.md shows a minimal one)\n"
    assert (code, out, err, fake.requests) == (2, "", shown, [])
    assert ctl("submit", "none.py", "--home", home)[2] == "elasticctl: none.py: no such file\n"


def test_a_notebook_is_no_entrypoint(folder: Path, home: Path, ctl: Ctl, daemon: Daemon) -> None:
    (folder / "nb.ipynb").write_text('{"cells": null}')
    fake = daemon(home, {"submit": {"id": "never"}})
    code, _, err = ctl("submit", "job.toml", "--set", "job.entrypoint=nb.ipynb", "--home", home)
    assert err == (
        'elasticctl: --set job.entrypoint=nb.ipynb: job.entrypoint: "nb.ipynb" is a notebook: make'
        ' a script of it (jupyter nbconvert --to script nb.ipynb), and name that, "nb.py"\n'
    )
    assert (code, fake.requests) == (2, [])


def test_too_few_copies_of_the_files_are_a_warning(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    short = "its files are on node-0 only, not on 2 nodes (node-1: disk full)"
    daemon(home, {"submit": {"id": "j", "warning": "", "short": short}})
    said = f"j: {short}; if these are lost before another node has begun the job, submit it again\n"
    assert ctl("submit", "job.toml", "--home", home) == (0, "j\n", said)
    code, out, err = ctl("submit", "job.toml", "--json", "--home", home)
    assert (code, json.loads(out), err) == (0, {"id": "j", "short": short}, said)


def test_that_a_daemon_is_asked_again_is_said(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    answers: Iterator[list[Any]] = iter([[], [{"id": "j"}]])
    fake = daemon(home, {"submit": lambda request: next(answers)})
    said = f"the daemon at {home} doesn't answer (it hung up): asking again\n"
    assert ctl("submit", "job.toml", "--home", home) == (0, "j\n", said)
    assert [r["do"] for r in fake.requests] == ["submit", "submit"]


def test_the_folder_arrives_whole(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "big").write_bytes(bytes(range(256)) * 20_000)
    fake = daemon(home, {"submit": {"id": "byte-lm-1-k3f9"}})
    code, out, err = ctl("submit", "job.toml", "--set", "batch.global=16", "--home", home)
    assert (code, out, err) == (0, "byte-lm-1-k3f9\n", "")
    request = fake.requests[0]
    assert JobSpec.from_dict(request["spec"]).batch.global_ == 16
    assert fake.archives == [archive.pack(folder).data]
    assert request["archive_digest"] == archive.digest(fake.archives[0])
    assert request["archive_bytes"] == len(fake.archives[0])


def test_json_prints_the_id(folder: Path, home: Path, ctl: Ctl, daemon: Daemon) -> None:
    daemon(home, {"submit": {"id": "j"}})
    assert ctl("--json", "submit", folder / "job.toml", "--home", home) == (0, '{"id": "j"}\n', "")


def test_a_daemon_that_refuses_early_is_heard(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    (folder / "big").write_bytes(b"x" * 8_000_000)
    fake = daemon(home, {"submit": {"error": "the queue is full", "code": 1}})
    fake._receive_archive = lambda frames, size: None
    code, _, err = ctl("submit", "job.toml", "--home", home)
    assert (code, err) == (1, "elasticctl: the queue is full\n")


def statuses(status: dict[str, Any], *changes: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    looks = iter(changes)
    last: dict[str, Any] = {}

    def look(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal last
        last = next(looks, last)
        return {**status, "jobs": [{**status["jobs"][0], **last}]}

    return look


EVENT = {
    "time": 1767312000.0,
    "node": "node-0",
    "job": "byte-lm-1-k3f9",
    "generation": 4,
    "kind": "recovery_finished",
    "reason": "rank 1 is back after 0.4 s",
}


@pytest.mark.parametrize(
    ("change", "code", "last"),
    [
        (
            {"state": "finished", "step": 200, "digest": "abc"},
            0,
            "byte-lm-1-k3f9 finished: 200 of 200 steps, loss 2.135, 2 recoveries, 0 steps lost\n"
            "digest abc\n",
        ),
        (
            {"state": "failed", "reason": "ValueError: no", "ranks": []},
            1,
            "byte-lm-1-k3f9 failed after 120 of 200 steps: ValueError: no\n",
        ),
        (
            {"state": "cancelled", "ranks": []},
            1,
            "byte-lm-1-k3f9 cancelled after 120 of 200 steps: no reason given\n",
        ),
    ],
    ids=["finished", "failed", "cancelled"],
)
def test_waiting_shows_events_and_the_end(
    change: dict[str, Any],
    code: int,
    last: str,
    folder: Path,
    home: Path,
    ctl: Ctl,
    daemon: Daemon,
    status: dict[str, Any],
) -> None:
    told = threading.Event()
    look = statuses(status, {}, change)

    def events(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from (EVENT, EVENT, {"end": True})
        told.set()

    def status_then(request: dict[str, Any]) -> dict[str, Any]:
        assert told.wait(20)
        return look(request)

    daemon(home, {"submit": {"id": "byte-lm-1-k3f9"}, "status": status_then, "events": events})
    result, out, err = ctl("submit", "job.toml", "--wait", "--home", home)
    assert (result, err) == (code, "")
    first, *middle = out.removesuffix(last).splitlines()
    assert out.endswith(last) and first == "byte-lm-1-k3f9"
    assert sorted(middle) == [  # a first look that takes long comes before the events
        "2026-01-02 00:00:00  byte-lm-1-k3f9  recovery finished: rank 1 is back after 0.4 s",
        "byte-lm-1-k3f9  running  step 120/200  loss 2.135, 3.1 steps/s, world 2 (node-0 node-2)",
    ]


def test_waiting_with_json(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon, status: dict[str, Any]
) -> None:
    daemon(
        home,
        {
            "submit": {"id": "j"},
            "status": statuses(status, {}, {"state": "failed", "reason": "no"}),
            "events": [EVENT, {"end": True}],
        },
    )
    code, out, _ = ctl("submit", "job.toml", "--wait", "--json", "--home", home)
    first, final = (json.loads(line) for line in out.splitlines())
    assert code == 1
    assert first == {"id": "j"}
    assert (final["state"], final["reason"]) == ("failed", "no")


def test_a_file_of_mlx_lm_says_what_it_was_taken_for(
    folder: Path, home: Path, ctl: Ctl, daemon: Daemon
) -> None:
    pytest.importorskip("yaml", reason="needs elasticd[lm]")
    for name in ("model/config.json", "data/train.jsonl"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("{}")
    (folder / "lora.yaml").write_text("model: model\niters: 20\n")
    daemon(home, {"submit": {"id": "lora-1"}})
    code, out, err = ctl("submit", "lora.yaml", "--home", home, "--json")
    assert (code, json.loads(out)) == (0, {"id": "lora-1"})
    assert (
        "lora.yaml is a configuration of mlx-lm: job lora, lora of model on data, 20 steps" in err
    )
