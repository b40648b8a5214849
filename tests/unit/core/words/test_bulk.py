"""What daemons fetch from each other: right requests are read, others refused."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.checkpoints.questions import HeldShards, StoredJobs, VerifyStored, WantShard
from elasticd.core.words.bulk import (
    WANTS,
    Blow,
    CopyOutput,
    CutHere,
    CutOrder,
    KeepArchive,
    Relay,
    StrikeHere,
    Want,
    WantArchiveList,
    WantOutput,
    WantOutputIndex,
    WantOutputList,
    WantState,
)
from elasticd.errors import ProtocolError
from elasticd.types import JobId, NodeId, Stamp

JOB, STAMP = JobId("j"), Stamp("s")
A, B = NodeId("a"), NodeId("b")
STATE = {"what": "state", "job": "j", "step": 3, "stamp": "s"}


@pytest.mark.parametrize(
    ("want", "frame"),
    [
        (StoredJobs(), {"what": "stored_jobs"}),
        (WantState(JOB, 3, STAMP), {**STATE, "since": None, "part": 0, "parts": 1}),
        (
            WantShard(JOB, 3, STAMP, 0, 2),
            {"what": "shard", "job": "j", "step": 3, "stamp": "s", "index": 0, "count": 2},
        ),
        (
            HeldShards(JOB, 3, STAMP),
            {"what": "held", "job": "j", "step": 3, "stamp": "s", "count": None},
        ),
        (
            VerifyStored(JOB, 3, STAMP, asked="ab"),
            {"what": "verify", "job": "j", "step": 3, "stamp": "s", "index": None, "asked": "ab"},
        ),
        (
            StrikeHere(Blow("kill", "trainer", A, 7, 0.0)),
            {
                "what": "chaos",
                "blow": {"what": "kill", "process": "trainer", "node": "a", "pid": 7,
                         "seconds": 0.0},
            },
        ),
        (
            CutHere(CutOrder(A, (B,), "drop", 2.0)),
            {
                "what": "chaos",
                "order": {"node": "a", "from_": ["b"], "how": "drop", "seconds": 2.0},
            },
        ),
        (KeepArchive("00", A), {"what": "keep_archive", "digest": "00", "source": "a"}),
        (WantArchiveList(), {"what": "archive_list"}),
        (
            WantOutputList(JOB, limit_bytes=9),
            {"what": "output_list", "job": "j", "copy": False, "limit_bytes": 9, "steps": False},
        ),
        (
            WantOutput(JOB, "a/b", copy=True),
            {"what": "output", "job": "j", "name": "a/b", "copy": True},
        ),
        (
            WantOutputIndex(JOB, "a/b"),
            {"what": "output_index", "job": "j", "name": "a/b"},
        ),
        (CopyOutput(JOB), {"what": "copy_output", "job": "j"}),
        (
            Relay(A, {"what": "log", "x": [1, None]}),
            {"what": "relay", "node": "a", "request": {"what": "log", "x": [1, None]}},
        ),
    ],
)  # fmt: skip
def test_the_wire_is_as_it_was(want: Want, frame: dict[str, Any]) -> None:
    assert WANTS.encode(want) == frame
    assert WANTS.decode({**frame, "t": "fetch", "cluster": "c/1"}) == want


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        ({}, "unknown"),
        ({"what": ["state"]}, "unknown"),
        ({"what": "stored"}, "StoredOfJob: field job is missing"),
        ({**STATE, "part": None}, "WantState.part"),
        ({"what": "relay", "node": "a", "request": "state"}, "Relay.request"),
        ({"what": "chaos"}, "order is missing; StrikeHere: field blow is missing"),
        ({"what": "chaos", "blow": {"what": "melt"}}, "Blow.what: 'melt' is none of"),
    ],
)
def test_what_nobody_can_want_is_refused(frame: dict[str, Any], what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        WANTS.decode(frame)


def test_a_verification_that_an_earlier_version_asks_for_has_no_name() -> None:
    frame = {"what": "verify", "job": "j", "step": 3, "stamp": "s", "index": None}
    assert WANTS.decode({**frame, "t": "fetch"}) == VerifyStored(JOB, 3, STAMP)
