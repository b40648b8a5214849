"""Every message survives the wire, and nothing malformed gets through."""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from typing import Any

import pytest
from hypothesis import given, settings

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.words.codec import MAX_DEPTH, MAX_LENGTH, Checked, from_plain, to_plain
from elasticd.core.words.messages import decode, encode, since
from elasticd.core.words.records import Heard, JobRecord, NodeRecord, View, World
from elasticd.core.words.versions import OLDEST
from elasticd.core.words.views import Carry, Obituary
from elasticd.errors import ProtocolError
from elasticd.recovery.unknown import NOTHING
from elasticd.types import NO_TAG, NodeId, Tag
from tests.unit.core.words.drawn import PLAIN, values


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
        ({"t": "Obituary", "node": "a", "why": "x" * (MAX_LENGTH + 1)}, "more than"),
        ({"t": "JobsKept", "jobs": "abc"}, "expected a list"),
        ({"t": "JobsKept", "jobs": [None]}, "NoneType"),
    ],
)
def test_refuses_a_malformed_message(plain: dict[str, Any], part: str) -> None:
    with pytest.raises(ProtocolError, match=part.replace("[", r"\[").replace(".", r"\.")):
        decode(plain)


def test_what_was_checked_stands_for_a_whole_value_and_never_for_a_part_of_one() -> None:
    assert from_plain(Any, Checked({"a": 1})) == {"a": 1}
    for plain in ([Checked(1)], {"a": Checked(1)}, {"a": [Checked(1)]}):
        with pytest.raises(TypeError, match="a part"):
            from_plain(Any, plain)


def test_a_field_that_a_later_version_has_is_passed_over() -> None:
    plain = encode(Obituary(NodeId("a"), "b"))
    assert decode({**plain, "more": [1]}) == Obituary(NodeId("a"), "b")


def test_a_field_that_an_older_version_lacks_takes_its_default() -> None:
    """Of whatever record: a journal of before is read."""
    for kind in (View, World, JobRecord, NodeRecord, Heard):
        for field in dataclasses.fields(kind):
            if (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                continue
            if field.default is not NOTHING:
                _without(kind, field.name)


def _without(kind: type[Any], name: str) -> None:
    @settings(max_examples=5)
    @given(values(kind))
    def is_read(record: Any) -> None:
        plain = to_plain(record)
        plain.pop(name, None)  # what was added is not said while it is the default
        fresh = from_plain(kind, plain)
        for field in dataclasses.fields(kind):
            if field.name != name:
                assert getattr(fresh, field.name) == getattr(record, field.name)

    is_read()


def test_what_nobody_describes_is_not_nested_for_ever() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(ProtocolError, match="nested"):
        decode({"t": "Summary", "job": "j", "fields": {"x": deep}})


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


def test_what_is_carried_is_as_new_as_what_is_in_it() -> None:
    for frame in ({}, {"message": None}, {"message": {"t": "of a version to come"}}):
        assert since(Carry(NodeId("a"), NodeId("b"), False, frame)) == OLDEST
    assert since(Carry(NodeId("a"), NodeId("b"), False, {"message": {"t": "Jobs"}})) == OLDEST
