"""The one rule for a value that a later version has added to a closed set: it is refused.

Generated over every field of every word and of every record that is kept.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.words.codec import Words, from_plain, to_plain
from elasticd.core.words.records import JobRecord, NodeRecord, View, World
from elasticd.core.words.requests.every import Answer
from elasticd.errors import ProtocolError
from tests.fuzz.samples import sample
from tests.unit.core.words.conversations import CONVERSATIONS

Place = tuple[str | int, ...]
LATER = "of a later version"
KEPT = (View, World, JobRecord, NodeRecord, Manifest, *typing.get_args(Answer))


def closed(hint: Any) -> Iterator[Place]:
    """Where in a value of an annotated type something from a closed set stands."""
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    inner: list[tuple[Place, Any]] = []
    if origin is typing.Literal:
        yield ()
    elif origin in (typing.Union, types.UnionType):
        inner = [((), each) for each in arguments]
    elif origin is tuple:
        several = arguments[:1] if arguments[1:] == (...,) else arguments
        inner = [((at,), each) for at, each in enumerate(several)]
    elif origin is dict:
        assert not any(place for each in arguments for place in closed(each)), "not looked into"
    elif dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        inner = [((field.name,), hints[field.name]) for field in dataclasses.fields(hint)]
    for begins, each in inner:
        yield from (begins + place for place in closed(each))


def changed(plain: Any, place: Place) -> Any:
    """With a value there that no closed set has."""
    if not place:
        return LATER
    copy: Any = dict(plain) if isinstance(plain, dict) else list(plain)
    copy[place[0]] = changed(plain[place[0]], place[1:])
    return copy


WORDS = [
    pytest.param(words, kind, place, id=".".join([kind.__name__, *map(str, place)]))
    for words in CONVERSATIONS.values()
    for kind in words.kinds
    for place in closed(kind)
]
RECORDS = [
    pytest.param(kind, place, id=".".join([kind.__name__, *map(str, place)]))
    for kind in KEPT
    for place in closed(kind)
]


@pytest.mark.parametrize(("words", "kind", "place"), WORDS)
def test_a_word_with_a_later_value_is_refused(
    words: Words[Any], kind: type[Any], place: Place
) -> None:
    plain = words.encode(sample(kind, True))
    assert isinstance(words.decode(plain), kind)
    with pytest.raises(ProtocolError, match=LATER):
        words.decode(changed(plain, place))


@pytest.mark.parametrize(("kind", "place"), RECORDS)
def test_a_record_with_a_later_value_is_refused(kind: type[Any], place: Place) -> None:
    plain = to_plain(sample(kind, True))
    from_plain(kind, plain)
    with pytest.raises(ProtocolError, match=LATER):
        from_plain(kind, changed(plain, place))


def test_all_closed_sets_are_found() -> None:
    found = {each.id for each in (*WORDS, *RECORDS)}
    assert {
        "ChildHello.role", "TrainerNotFinite.policy", "TrainerWrote.mode", "ShardsWritten.mode",
        "GiveWorld.state", "MemberStatus.trainer.phase", "MemberStatus.faults.0.0",
        "Form.world.rung", "Jobs.records.0.state", "StrikeRank.what", "StrikeHere.blow.process",
        "JobRecord.state",
    } <= found  # fmt: skip
    assert len(found) >= 25
