"""Frames of children: right ones are read, others are refused and never break anything else."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.words.trainers import (
    FROM_TRAINER,
    TrainerPrepared,
    TrainerProgress,
    TrainerWaiting,
    TrainerWrote,
    WrittenShard,
)
from elasticd.errors import ProtocolError
from elasticd.types import NodeId, Tag

PROGRESS: dict[str, Any] = {
    "t": "progress", "generation": [1, "a", "x"], "step": 3, "stamp": "s", "committed": None,
    "loss": None, "phase": "compute", "steps_per_second": 2.0, "memory_bytes": 1, "metrics": {},
}  # fmt: skip
SHARDS: dict[str, Any] = {
    "t": "shards", "generation": [1, "a", "x"], "lineage": "l", "step": 3, "stamp": "s", "count": 1,
    "shards": [{"index": 0, "bytes": 9, "digest": "d", "tensors": {"w": "e"}}], "digest": "d",
    "check": "c", "stall_seconds": 0.0, "write_seconds": 1,
}  # fmt: skip


def test_what_children_say_is_read() -> None:
    progress = FROM_TRAINER.decode(PROGRESS)
    assert isinstance(progress, TrainerProgress)
    assert progress.generation == Tag(1, NodeId("a"), "x")
    wrote = FROM_TRAINER.decode(SHARDS)
    assert isinstance(wrote, TrainerWrote)
    assert wrote.shards == (WrittenShard(0, 9, "d", {"w": "e"}),)
    assert FROM_TRAINER.decode({"t": "waiting", "said by": "a later version"}) == TrainerWaiting()


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ({"t": 7}, "unknown message"),
        ({}, "unknown message"),
        ({"t": "new kind", "x": 1}, "unknown message 'new kind'"),
        ({"t": ["progress"]}, "unknown message"),
        ({**PROGRESS, "step": "3"}, "TrainerProgress.step"),
        ({**PROGRESS, "generation": [1, "a"]}, "TrainerProgress.generation"),
        ({**PROGRESS, "phase": "asleep"}, "'asleep' is none of"),
        ({k: v for k, v in PROGRESS.items() if k != "loss"}, "loss is missing"),
        ({**SHARDS, "shards": [{"index": 0}]}, "WrittenShard: field bytes is missing"),
        ({**SHARDS, "mode": 3}, "TrainerWrote.mode"),
        # Each of these two ended a whole daemon once.
        ({"t": "prepared"}, "TrainerPrepared: field serial is missing"),
        ({"t": "holding", "serial": 1, "point": None, "committed": None, "gives": 5}, "gives"),
    ],
)
def test_what_no_child_says_is_refused(message: dict[str, Any], what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        FROM_TRAINER.decode(message)


def test_a_child_says_only_what_its_role_says() -> None:
    with pytest.raises(ProtocolError, match="unknown message 'formed'"):
        FROM_TRAINER.decode({"t": "formed", "generation": [1, "a", "x"]})


def test_a_row_is_as_children_have_it() -> None:
    said = FROM_TRAINER.encode(TrainerPrepared(3, None, "no", True))
    assert said == {"t": "prepared", "serial": 3, "point": None, "reason": "no", "replays": True}
