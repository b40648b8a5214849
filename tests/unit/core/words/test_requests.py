"""What clients ask: right requests are read, others are refused; the wire is as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.requests.chaos import CutLinks, StrikeRank
from elasticd.core.words.requests.checkpoints import PruneCheckpoints
from elasticd.core.words.requests.ends import Failed
from elasticd.core.words.requests.every import REQUESTS, Answer, Request
from elasticd.core.words.requests.jobs import ArchivePart, SubmitJob
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.wire import ASKED
from elasticd.errors import IdError, ProtocolError
from elasticd.types import JobId, NodeId
from tests.unit.core.words.drawn import values

JOB = JobId("j")
A, B = NodeId("a"), NodeId("b")


@pytest.mark.parametrize(
    ("request_", "frame"),
    [
        (ShowStatus(), {"do": "status"}),
        (ShowStatus(JOB), {"do": "status", "job": "j"}),
        (ReadLogs(JOB), {"do": "logs", "job": "j", "follow": False}),
        (ReadLogs(JOB, 0, True), {"do": "logs", "job": "j", "rank": 0, "follow": True}),
        (
            SubmitJob({"a": None}, 3, "00"),
            {"do": "submit", "spec": {"a": None}, "archive_bytes": 3, "archive_digest": "00"},
        ),
        (
            PruneCheckpoints(JOB, keep=1),
            {"do": "checkpoints_prune", "job": "j", "keep": 1, "dry_run": False},
        ),
        (
            StrikeRank("kill", JOB, 0),
            {"do": "chaos", "what": "kill", "job": "j", "rank": 0, "process": "trainer",
             "seconds": 0.0},
        ),
        (
            CutLinks("link", ((A,), (B,)), 2.0),
            {"do": "chaos", "what": "link", "groups": [["a"], ["b"]], "how": "drop",
             "seconds": 2.0},
        ),
    ],
)  # fmt: skip
def test_the_wire_is_as_it_was(request_: Request, frame: dict[str, Any]) -> None:
    assert REQUESTS.encode(request_) == ASKED.encode(request_) == frame
    assert REQUESTS.decode({**frame, "said by": "a later version"}) == request_


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (StrikeRank("kill", JobId(""), 0), "'' is no job's id: 1 to 63 letters"),
        (CutLinks("link", ((A,), (NodeId("/"),)), 1.0), "'/' is no node's id: 1 to 63 letters"),
    ],
)
def test_of_words_of_one_name_that_tells_what_is_wrong_which_is_meant(
    asked: Request, said: str
) -> None:
    with pytest.raises(IdError) as refused:
        REQUESTS.decode(ASKED.encode(asked))
    assert refused.value.said.startswith(said)


def test_where_no_word_is_meant_all_tell_what_is_wrong() -> None:
    with pytest.raises(ProtocolError, match=r"StrikeRank\.what.*; CutLinks\.what") as refused:
        REQUESTS.decode({**ASKED.encode(StrikeRank("kill", JOB, 0)), "what": "smash"})
    assert not isinstance(refused.value, IdError)


def test_what_is_not_said_is_none() -> None:
    assert REQUESTS.decode({"do": "status", "job": None}) == ShowStatus()
    asked = REQUESTS.decode({"do": "chaos", "what": "slow", "job": "j", "rank": 1})
    assert asked == StrikeRank("slow", JOB, 1)


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        ({}, "unknown"),
        ({"t": "status"}, "unknown"),
        ({"do": ["status"]}, "unknown"),
        ({"do": "status", "job": 7}, "ShowStatus.job"),
        ({"do": "cancel"}, "CancelJob: field job is missing"),
        ({"do": "cancel", "job": None}, "CancelJob.job"),
        ({"do": "drain", "job": "j"}, "DrainNode: field node is missing"),
        ({"do": "logs", "job": "j", "rank": True}, "ReadLogs.rank"),
        ({"do": "submit", "spec": [], "archive_bytes": 1, "archive_digest": ""}, "SubmitJob.spec"),
        ({"do": "chaos", "what": "melt", "job": "j", "rank": 0}, "'melt' is none of"),
        ({"do": "chaos", "what": "kill", "job": "j", "rank": "0"}, "StrikeRank.rank"),
        ({"do": "chaos", "what": "link", "groups": "ab", "seconds": 1}, "CutLinks.groups"),
    ],
)
def test_what_is_no_request_is_refused(frame: dict[str, Any], what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        REQUESTS.decode(frame)


@given(values(Answer) | values(ArchivePart))
def test_an_answer_survives_the_wire(word: Any) -> None:
    assert from_plain(type(word), to_plain(word)) == word


def test_a_failure_without_a_code_is_an_operations() -> None:
    assert from_plain(Failed, {"error": "no"}) == Failed("no", 1)
