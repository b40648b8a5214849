"""Dataclasses to plain maps and back, checked field by field.

What arrives from another process is only as good as this check: a wrong type, a missing or an
unknown field is a :class:`ProtocolError` and never reaches the state machine.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import lru_cache
from typing import Any, Union

from elasticd.errors import ProtocolError

Plain = Any
"""None, bool, int, float, str, bytes, list and dict: what msgpack carries."""


_ATOMS = frozenset({str, int, float, bool, bytes, types.NoneType})
"""What is the same on both sides. A view has a thousand names."""


def to_plain(value: Any) -> Plain:
    """Turn dataclasses and tuples, nested at will, into what msgpack carries."""
    if type(value) in _ATOMS:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def from_plain(hint: Any, plain: Plain) -> Any:
    """Build a value of the annotated type ``hint``.

    Raises:
        ProtocolError: ``plain`` does not fit the annotation.
    """
    hint = getattr(hint, "__supertype__", hint)
    if hint is Any:
        return plain
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _from_union(hint, plain)
    if origin is tuple:
        return _from_tuple(hint, plain)
    if origin is dict:
        return _from_dict(hint, plain)
    if origin is typing.Literal:
        if plain in typing.get_args(hint):
            return plain
        raise ProtocolError(f"{plain!r} is none of {typing.get_args(hint)}")
    if dataclasses.is_dataclass(hint):
        return _from_map(typing.cast(type, hint), plain)
    if hint is float and type(plain) is int:
        return float(plain)
    if isinstance(hint, type) and type(plain) is hint:
        return plain
    raise ProtocolError(f"expected {hint}, got {type(plain).__name__}")


def _from_union(hint: Any, plain: Plain) -> Any:
    for option in typing.get_args(hint):
        if option is type(None):
            if plain is None:
                return None
        else:
            return from_plain(option, plain) if plain is not None else _missing(hint)
    raise ProtocolError(f"expected {hint}, got {type(plain).__name__}")


def _missing(hint: Any) -> Any:
    if type(None) in typing.get_args(hint):
        return None
    raise ProtocolError(f"expected {hint}, got nothing")


def _from_tuple(hint: Any, plain: Plain) -> Any:
    arguments = typing.get_args(hint)
    if not isinstance(plain, (list, tuple)):
        raise ProtocolError(f"expected a list, got {type(plain).__name__}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        kind = getattr(arguments[0], "__supertype__", arguments[0])
        if kind in _ATOMS and all(type(item) is kind for item in plain):
            return tuple(plain)
        return tuple(from_plain(arguments[0], item) for item in plain)
    if len(plain) != len(arguments):
        raise ProtocolError(f"expected {len(arguments)} items, got {len(plain)}")
    return tuple(from_plain(kind, item) for kind, item in zip(arguments, plain, strict=True))


def _from_dict(hint: Any, plain: Plain) -> Any:
    key_hint, value_hint = typing.get_args(hint)
    if not isinstance(plain, dict):
        raise ProtocolError(f"expected a map, got {type(plain).__name__}")
    return {from_plain(key_hint, k): from_plain(value_hint, v) for k, v in plain.items()}


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _from_map(kind: type, plain: Plain) -> Any:
    if not isinstance(plain, dict):
        raise ProtocolError(f"{kind.__name__}: expected a map, got {type(plain).__name__}")
    hints = _hints(kind)
    unknown = [key for key in plain if key not in hints]
    if unknown:
        raise ProtocolError(f"{kind.__name__}: unknown field {unknown[0]!r}")
    values = {}
    for name, hint in hints.items():
        if name not in plain:
            raise ProtocolError(f"{kind.__name__}: field {name} is missing")
        try:
            values[name] = from_plain(hint, plain[name])
        except ProtocolError as error:
            raise ProtocolError(f"{kind.__name__}.{name}: {error}") from None
    return kind(**values)
