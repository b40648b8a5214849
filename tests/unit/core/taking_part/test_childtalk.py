"""Frames of children: right ones pass, others are refused and never break anything else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.taking_part import childtalk
from elasticd.errors import ProtocolError

PROGRESS: dict[str, Any] = {
    "t": "progress", "generation": [1, "a", "x"], "step": 3, "stamp": "s", "committed": None,
    "loss": None, "phase": "compute", "steps_per_second": 2.0, "memory_bytes": 1, "metrics": {},
}  # fmt: skip
SHARDS: dict[str, Any] = {
    "t": "shards", "generation": [1, "a", "x"], "lineage": "l", "step": 3, "stamp": "s", "count": 1,
    "shards": [{"index": 0, "bytes": 9, "digest": "d", "tensors": {"w": "e"}}], "digest": "d",
    "check": "c", "stall_seconds": 0.0, "write_seconds": 1,
}  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("message", [PROGRESS, SHARDS, {"t": "waiting"}, {"t": "new kind", "x": 1}])
def test_what_children_say_passes(message: dict[str, Any]) -> None:
    childtalk.check(message)


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ({"t": 7}, "no kind"),
        ({}, "no kind"),
        ({**PROGRESS, "step": "3"}, "progress.step"),
        ({**PROGRESS, "generation": [1, "a"]}, "progress.generation"),
        ({k: v for k, v in PROGRESS.items() if k != "loss"}, "loss is missing"),
        ({**SHARDS, "shards": [{"index": 0}]}, "shard: field bytes is missing"),
        ({**SHARDS, "mode": 3}, "shards.mode"),
    ],
)
def test_what_no_child_says_is_refused(message: dict[str, Any], what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        childtalk.check(message)


@given(
    st.sampled_from([*childtalk._FIELDS, "other"]),
    st.dictionaries(st.sampled_from(sorted({*PROGRESS, *SHARDS, "serial", "point"})), anything),
)
def test_nothing_else_is_ever_raised(kind: str, fields: dict[str, Any]) -> None:
    try:
        childtalk.check({**fields, "t": kind})
    except ProtocolError as error:
        assert str(error)
