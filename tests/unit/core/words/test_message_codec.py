"""Every message survives the wire, and nothing malformed gets through."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.messages import Message, decode, encode
from elasticd.core.words.records import JobRecord, View, World
from elasticd.errors import ProtocolError
from elasticd.types import NO_TAG, NodeId, Tag

KINDS: list[type[Any]] = list(typing.get_args(Message))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**53), 2**53),
    str: st.text(max_size=12),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=12),
    Any: PLAIN,
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values that fit an annotation, as this package uses them."""
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin in (typing.Union, types.UnionType):
        return st.one_of([st.none() if a is type(None) else values(a) for a in arguments])
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    assert dataclasses.is_dataclass(hint), hint
    hints = typing.get_type_hints(hint)
    fields = {field.name: values(hints[field.name]) for field in dataclasses.fields(hint)}
    return st.builds(typing.cast(Any, hint), **fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_message_survives_the_wire(kind: type[Any]) -> None:
    @settings(max_examples=15)
    @given(values(kind))
    def survives(message: Message) -> None:
        carried = msgpack.unpackb(msgpack.packb(encode(message)), strict_map_key=False)
        assert decode(carried) == message

    survives()


@pytest.mark.parametrize(
    ("plain", "part"),
    [
        ({}, "unknown message"),
        ({"t": "Nonsense"}, "unknown message 'Nonsense'"),
        ({"t": "ViewAck"}, "field epoch is missing"),
        ({"t": "ViewAck", "epoch": [1, "a", "b"]}, "ViewAck.epoch: Tag: expected a map"),
        ({"t": "Release", "job": 1, "generation": to_plain(NO_TAG)}, "Release.job: expected"),
        ({"t": "Heartbeat", "epoch": to_plain(NO_TAG), "counter": "1"}, "Heartbeat.counter"),
        ({"t": "Heartbeat", "epoch": to_plain(NO_TAG), "counter": True}, "got bool"),
        ({"t": "Obituary", "node": "a", "why": "b", "more": 1}, "unknown field 'more'"),
        ({"t": "JobsKept", "jobs": "abc"}, "expected a list"),
        ({"t": "JobsKept", "jobs": [None]}, "NoneType"),
    ],
)
def test_refuses_a_malformed_message(plain: dict[str, Any], part: str) -> None:
    with pytest.raises(ProtocolError, match=part.replace("[", r"\[").replace(".", r"\.")):
        decode(plain)


@given(PLAIN)
def test_any_plain_value_is_read_or_refused(plain: Any) -> None:
    for hint in (View, World, JobRecord, Manifest, tuple[int, str], int | None):
        with contextlib.suppress(ProtocolError):
            from_plain(hint, plain)


def test_a_job_state_is_one_of_those_that_there_are() -> None:
    record = to_plain(JobRecord(typing.cast(Any, "j"), 1, {}, "a", "queued"))
    assert from_plain(JobRecord, record).state == "queued"
    with pytest.raises(ProtocolError, match="'over' is none of"):
        from_plain(JobRecord, {**record, "state": "over"})


def test_a_whole_number_may_stand_for_a_fraction_but_not_the_reverse() -> None:
    assert from_plain(float, 2) == 2.0
    with pytest.raises(ProtocolError):
        from_plain(int, 2.0)


def test_tags_are_equal_only_as_a_whole() -> None:
    one, other = Tag(3, NodeId("a"), "x"), Tag(3, NodeId("a"), "y")
    assert from_plain(Tag, to_plain(one)) == one
    assert one != other
    assert one < other < Tag(3, NodeId("b"), "a") < Tag(4, NodeId("a"), "a")
