"""A change is made once, whichever daemons die over it, and nobody is left without an outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticd.client import again, connection
from elasticd.client.client import Client
from elasticd.core.words.requests.jobs import (
    CancelJob,
    ForgetJob,
    JobChanged,
    JobRetried,
    PauseJob,
    ResumeJob,
)
from elasticd.core.words.requests.nodes import (
    DrainNode,
    ForgetNode,
    NodeChanged,
    PutOutNode,
    UndrainNode,
)
from elasticd.errors import NoDaemonError, OperationError
from elasticd.types import JobId, NodeId
from tests.unit.client.fake_daemon import FakeDaemon

JOB, NODE = JobId("j"), NodeId("n")
STATUS: dict[str, Any] = {"jobs": []}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of several daemons is asked, however late a busy machine answers; none is waited
    for."""
    monkeypatch.setattr(connection, "PROBE_SECONDS", 60.0)
    monkeypatch.setattr(again, "FIRST_PAUSE_SECONDS", 0.0)


def asked(daemon: FakeDaemon) -> list[str]:
    return [request["do"] for request in daemon.requests if request["do"] != "status"]


@pytest.mark.parametrize(
    "request_",
    [CancelJob(JOB), ForgetJob(JOB), PauseJob(JOB), ResumeJob(JOB), DrainNode(NODE),
     UndrainNode(NODE), ForgetNode(NODE)],
)  # fmt: skip
def test_one_that_hangs_up_after_it_has_read_leaves_it_to_another(
    tmp_path: Path, request_: Any
) -> None:
    kind, id_ = request_.kind, getattr(request_, "job", NODE)
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, kind: []})
    second = FakeDaemon(tmp_path / "node-1", {"status": STATUS, kind: {"id": id_, "state": "so"}})
    said: list[str] = []
    with first, second:
        changed = Client(tmp_path).change(request_, said.append)
    made = NodeChanged(NODE, "so") if id_ == NODE else JobChanged(JOB, "so")
    assert changed == made and asked(first) == asked(second) == [kind]
    assert len(said) == 1 and f"the daemon at {tmp_path}/node-0 doesn't answer" in said[0]


def test_nodes_are_tried_again_by_another(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, "retry": []})
    second = FakeDaemon(
        tmp_path / "node-1", {"status": STATUS, "retry": {"id": JOB, "nodes": [NODE]}}
    )
    with first, second:
        assert Client(tmp_path).retry(JOB) == JobRetried(JOB, (NODE,))
    assert asked(first) == ["retry"]


@pytest.mark.parametrize(("state", "already"), [("cancelled", False), ("finished", True)])
def test_what_the_first_has_done_is_no_failure_of_the_second(
    tmp_path: Path, state: str, already: bool
) -> None:
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, "cancel": []})
    answer = {"id": JOB, "state": state, "already": True}
    second = FakeDaemon(tmp_path / "node-1", {"status": STATUS, "cancel": answer})
    with first, second:
        assert Client(tmp_path).change(CancelJob(JOB)) == JobChanged(JOB, state, already)


def test_of_one_that_had_ended_before_it_was_asked_for_that_is_said(tmp_path: Path) -> None:
    answer = {"id": JOB, "state": "cancelled", "already": True}
    with FakeDaemon(tmp_path, {"cancel": answer}):
        assert Client(tmp_path).change(CancelJob(JOB)) == JobChanged(JOB, "cancelled", True)


def test_a_daemon_that_is_started_again_is_asked_again(tmp_path: Path) -> None:
    answers: list[Any] = [[], {"id": JOB, "state": "paused"}]
    with FakeDaemon(tmp_path, {"pause": lambda request: frames(answers.pop(0))}):
        assert Client(tmp_path).change(PauseJob(JOB)) == JobChanged(JOB, "paused")


def frames(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def test_where_none_answers_it_is_said_that_it_may_have_been_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(again, "ASK_SECONDS", 0.0)
    with FakeDaemon(tmp_path, {"cancel": [], "drain": []}) as daemon:
        with pytest.raises(NoDaemonError, match=r"may have done it.*'elasticctl status j' says"):
            Client(tmp_path).change(CancelJob(JOB))
        with pytest.raises(NoDaemonError, match=r"may have done it.*'elasticctl nodes' says"):
            Client(tmp_path).change(DrainNode(NODE))
    assert asked(daemon) == ["cancel"] * 3 + ["drain"] * 3


def test_where_no_daemon_is_nobody_waits(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(NoDaemonError, match="no daemon runs at") as failed:
        Client(tmp_path).change(CancelJob(JOB), said.append)
    assert said == [] and "may have done it" not in str(failed.value)


def test_a_refusal_counts_at_once(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path, {"pause": {"error": "it has ended", "code": 1}}) as daemon:
        with pytest.raises(OperationError, match="it has ended"):
            Client(tmp_path).change(PauseJob(JOB))
        assert asked(daemon) == ["pause"]


def test_a_node_is_put_out_by_one_daemon_alone(tmp_path: Path) -> None:
    """The next may be that node."""
    first = FakeDaemon(tmp_path / "node-0", {"status": STATUS, "put_out_node": []})
    second = FakeDaemon(tmp_path / "node-1", {"status": STATUS})
    with first, second, pytest.raises(NoDaemonError, match="may have done it"):
        Client(tmp_path).change(PutOutNode(NODE))
    assert asked(second) == []
