"""Words that are right in form and name nothing that exists, made from their definitions."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from elasticd.core.words.codec import Words
from elasticd.types import JobId, NodeId, Printable

NAMES: dict[Any, Any] = {JobId: "no-such-job", NodeId: "no-such-node"}
SCALARS: dict[Any, Any] = {
    str: "x", int: 1, float: 1.0, bool: False, bytes: b"x", types.NoneType: None, Any: {},
}  # fmt: skip


def frames(words: Words[Any], without: typing.Container[type[Any]] = ()) -> list[dict[str, Any]]:
    """Each kind of a conversation twice: with every field, and with those alone that it needs."""
    kinds = [kind for kind in words.kinds if kind not in without]
    return [words.encode(sample(kind, full)) for kind in kinds for full in (True, False)]


def sample(hint: Any, full: bool) -> Any:
    """A value that fits an annotation; ``full``: nothing that could be left out is."""
    if hint in NAMES:
        return NAMES[hint]
    hint = getattr(hint, "__supertype__", hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin in (typing.Union, types.UnionType):
        return sample(arguments[0], full) if full else None
    if origin is typing.Annotated:
        return "x" if isinstance(arguments[1], Printable) else arguments[1].least
    if origin is typing.Literal:
        return arguments[0]
    if origin is dict:
        return {}
    if origin is tuple and arguments[1:] == (...,):
        return (sample(arguments[0], full),) if full else ()
    if origin is tuple:
        return tuple(sample(each, full) for each in arguments)
    assert dataclasses.is_dataclass(hint), hint
    hints = typing.get_type_hints(hint, include_extras=True)
    return typing.cast(Any, hint)(
        **{
            each.name: sample(hints[each.name], full)
            for each in dataclasses.fields(hint)
            if full or not _has_default(each)
        }
    )


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing
