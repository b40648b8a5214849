"""A job is queued once, whichever daemons die while they take it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticd.archive import Archive
from elasticd.client import connection
from elasticd.client.client import Client
from elasticd.client.queue import Submission
from elasticd.errors import NoDaemonError, OperationError
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


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of several daemons is asked, however late a busy machine answers."""
    monkeypatch.setattr(connection, "PROBE_SECONDS", 60.0)


def packed() -> Archive:
    return Archive(data=b"tar", digest="00", files=1)


def submission(home: Path, said: list[str] | None = None) -> Submission:
    """Without pauses, and with as few tries as there may be."""
    again = (said if said is not None else []).append
    return Submission(Client(home), SPEC, packed(), again, seconds=0.0, pause_seconds=0.0)


def ids(*daemons: FakeDaemon) -> list[str]:
    return [r["id"] for d in daemons for r in d.requests if r["do"] == "submit"]


def test_the_next_daemon_is_asked_for_the_same_job(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, "name_job": {"id": NAMED}})

    def dies(request: dict[str, Any]) -> list[dict[str, Any]]:
        (tmp_path / "node-0" / "control.sock").unlink()
        return []

    first.answers["submit"] = dies
    second = FakeDaemon(tmp_path / "node-1", {"status": STATUS, "submit": {"id": NAMED}})
    said: list[str] = []
    with first, second:
        assert Client(tmp_path).queue(SPEC, packed(), said.append).id == NAMED
    assert ids(first, second) == [NAMED, NAMED]
    assert len(said) == 1 and f"the daemon at {tmp_path}/node-0 doesn't answer" in said[0]


def test_another_daemon_is_asked_before_the_one_that_gave_no_answer(tmp_path: Path) -> None:
    """It may be well otherwise: its disk hangs, say."""
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, "submit": []})
    second = FakeDaemon(tmp_path / "node-1", {"status": STATUS, "submit": {"id": NAMED}})
    with first, second:
        assert submission(tmp_path).queue().id == NAMED
    assert len(ids(first)) == 1 and ids(second) == ids(first)


def test_a_daemon_that_is_started_again_is_asked_again(tmp_path: Path) -> None:
    """It is the only one, and nobody listens for a while. One reason is said once."""
    starts: list[FakeDaemon] = []
    said: list[str] = []
    first = FakeDaemon(tmp_path, {"name_job": {"id": NAMED}})

    def dies(request: dict[str, Any]) -> list[dict[str, Any]]:
        (tmp_path / "control.sock").unlink()
        return []

    def again(why: str) -> None:
        said.append(why)
        if "no daemon runs" in why:
            starts.append(FakeDaemon(tmp_path, {"submit": {"id": NAMED}}).__enter__())

    first.answers["submit"] = dies
    try:
        with first:
            assert Submission(Client(tmp_path), SPEC, packed(), again).queue().id == NAMED
    finally:
        for daemon in starts:
            daemon.__exit__()
    assert ids(first, *starts) == [NAMED, NAMED]
    assert ["it hung up" in said[0], len(said)] == [True, 2]


def test_if_none_is_left_that_has_got_the_job_the_error_names_it(tmp_path: Path) -> None:
    fake = FakeDaemon(tmp_path, {"name_job": {"id": NAMED}, "submit": []})
    said: list[str] = []
    with fake, pytest.raises(NoDaemonError, match=f"'elasticctl status {NAMED}' says"):
        submission(tmp_path, said).queue()
    assert ids(fake) == [NAMED, NAMED] and len(said) == 1


def test_if_nobody_has_got_it_the_error_says_that_it_is_not_queued(tmp_path: Path) -> None:
    def dies(request: dict[str, Any]) -> dict[str, Any]:
        (tmp_path / "control.sock").unlink()
        return {"id": NAMED}

    fake = FakeDaemon(tmp_path, {"name_job": dies})
    with fake, pytest.raises(NoDaemonError, match="the job is not queued: submit it again"):
        submission(tmp_path).queue()


def test_what_a_daemon_refuses_is_not_said_again(tmp_path: Path) -> None:
    refusal = {"error": "36 other jobs are being sent to this node", "code": 1}
    fake = FakeDaemon(tmp_path, {"name_job": {"id": NAMED}, "submit": refusal})
    with fake, pytest.raises(OperationError, match="36 other jobs"):
        submission(tmp_path).queue()
    assert ids(fake) == [NAMED]


def test_an_older_daemon_makes_the_id(tmp_path: Path) -> None:
    unknown = {"error": "unknown request 'name_job'", "code": 2}
    with FakeDaemon(tmp_path, {"name_job": unknown, "submit": {"id": "j"}}) as fake:
        assert Client(tmp_path).submit(SPEC, packed()) == "j"
    assert "id" not in fake.requests[-1]
