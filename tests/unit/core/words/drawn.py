"""Values drawn at random that fit annotations or nothing; what holds of words made of them."""

from __future__ import annotations

import dataclasses
import string
import types
import typing
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.words.codec import Words
from elasticd.errors import ProtocolError
from elasticd.recovery.unknown import Unknown
from elasticd.types import JobId, NodeId, Printable

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
_LETTERS = string.ascii_letters + string.digits
JOB_IDS = st.text(_LETTERS + "._-", min_size=1, max_size=6).filter(lambda id: id[0] in _LETTERS)
"""As a regular expression would say it, which takes twice as long to draw."""
NODE_IDS = st.just("") | JOB_IDS
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-2, 8) | st.integers(-(2**53), 2**53),
    str: st.text(max_size=12),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=12),
    Any: PLAIN,
    Unknown: st.dictionaries(st.sampled_from(["~a", "~b", "~c"]), PLAIN).map(Unknown.of),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values that fit an annotation, as this package uses them."""
    if hint is NodeId:
        return NODE_IDS
    if hint is JobId:
        return JOB_IDS
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin in (typing.Union, types.UnionType):
        return st.one_of([st.none() if a is type(None) else values(a) for a in arguments])
    if origin is typing.Annotated:
        if isinstance(arguments[1], Printable):
            return st.text(max_size=arguments[1].most).filter(str.isprintable)
        return st.integers(arguments[1].least, arguments[1].most)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    assert dataclasses.is_dataclass(hint), hint
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = {field.name: values(hints[field.name]) for field in dataclasses.fields(hint)}
    return st.builds(typing.cast(Any, hint), **fields)


def survives_the_wire(words: Words[Any], kind: type[Any]) -> None:
    """A word of ``kind`` comes out as it went in."""

    @given(values(kind))
    def survives(word: Any) -> None:
        carried = msgpack.unpackb(msgpack.packb(words.encode(word)), strict_map_key=False)
        assert words.decode(carried) == word

    survives()


def is_read_or_refused(words: Words[Any], kind: type[Any]) -> None:
    """A word of ``kind`` whose one field is missing, or holds anything."""

    @given(values(kind), st.data())
    def holds(word: Any, data: st.DataObject) -> None:
        plain = words.encode(word)
        name = data.draw(st.sampled_from(sorted(plain)))
        if data.draw(st.booleans()):
            del plain[name]
        else:
            plain[name] = data.draw(ANYTHING)
        try:
            words.decode(plain)
        except ProtocolError as error:
            assert str(error)

    holds()
