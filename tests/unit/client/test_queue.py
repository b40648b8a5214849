"""A job is queued once, whichever daemons die while they take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticd.archive import Archive
from elasticd.client.client import SUBMIT_TRIES, Client
from elasticd.errors import NoDaemonError
from elasticd.settings.job import JobSpec
from tests.unit.client.fake_daemon import FakeDaemon

SPEC = JobSpec.from_dict(
    {
        "job": {"name": "byte-lm", "entrypoint": "train.py"},
        "batch": {"global": 8, "micro": 1},
        "train": {"steps": 1},
    }
)
STATUS: dict[str, Any] = {"jobs": []}
NAMED = "byte-lm-7-k3f9"


def packed() -> Archive:
    return Archive(data=b"tar", digest="00", files=1)


def test_the_next_daemon_is_asked_for_the_same_job(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, "name_job": {"id": NAMED}})

    def dies(request: dict[str, Any]) -> list[dict[str, Any]]:
        (tmp_path / "node-0" / "control.sock").unlink()
        return []

    first.answers["submit"] = dies
    second = FakeDaemon(tmp_path / "node-1", {"status": STATUS, "submit": {"id": NAMED}})
    with first, second:
        assert Client(tmp_path).submit(SPEC, packed()) == NAMED
    asked = [r["id"] for d in (first, second) for r in d.requests if r["do"] == "submit"]
    assert asked == [NAMED, NAMED]


def test_if_none_is_left_the_error_names_the_job(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path, {"name_job": {"id": NAMED}, "submit": []})
    with fake, pytest.raises(NoDaemonError, match=f"'elasticctl status {NAMED}' says"):
        Client(tmp_path).submit(SPEC, packed())
    assert [r["do"] for r in fake.requests].count("submit") == SUBMIT_TRIES


def test_an_older_daemon_makes_the_id(tmp_path: Path) -> None:
    unknown = {"error": "unknown request 'name_job'", "code": 2}
    with FakeDaemon(tmp_path, {"name_job": unknown, "submit": {"id": "j"}}) as fake:
        assert Client(tmp_path).submit(SPEC, packed()) == "j"
    assert "id" not in fake.requests[-1]
