"""What a function is: one that was changed, or that is given other things, is another."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

from elasticd.errors import UsageError
from elasticd.train.states.picture import attributes_of
from elasticd.train.steps.likeness import content_digest

_DEEPEST = 12
_NAMED = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type)
"""They have no code of Python's, and are known by their names."""


def code_of(function: Any) -> str:
    """Its code with what is its own: defaults, what it closes over, a partial's arguments, the
    attributes of an object that is called. Of other objects that it is given the kind counts.

    Raises:
        UsageError: nothing is known of it.
    """
    found = _callable(function, _DEEPEST, own=True)
    if found is None:
        raise UsageError(
            f"cached(): the function, of type {type(function).__qualname__}, can't be told from"
            " another one: put it into a def, and name in key what it depends on"
        )
    return repr(found)


def _callable(value: Any, deeper: int, *, own: bool) -> list[Any] | None:
    """None: nothing is known of it. ``own``: an object's attributes count."""
    if isinstance(value, types.FunctionType):
        cells = [_cell(cell) for cell in value.__closure__ or ()]
        given = [value.__defaults__, value.__kwdefaults__, cells]
        return [_code(value.__code__), _shown(given, deeper)]
    if isinstance(value, types.MethodType):
        return [_callable(value.__func__, deeper, own=own), _object(value.__self__, deeper, own)]
    if isinstance(value, functools.partial):
        function = _callable(value.func, deeper, own=own)
        return function and [function, _shown([value.args, value.keywords], deeper)]
    if hasattr(value, "__wrapped__"):
        return _callable(value.__wrapped__, deeper, own=own)
    if isinstance(value, _NAMED):
        of = getattr(value, "__self__", None)
        return [getattr(value, "__module__", None), value.__qualname__, _kind(of)]
    call = getattr(type(value), "__call__", None)  # noqa: B004
    if isinstance(call, types.FunctionType):
        return [_code(call.__code__), _object(value, deeper, own)]
    return None


def _code(code: types.CodeType) -> list[Any]:
    consts = [_code(c) if isinstance(c, types.CodeType) else _shown(c, 1) for c in code.co_consts]
    return [code.co_code.hex(), code.co_names, consts]


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was put into it so far
        return None


def _object(value: Any, deeper: int, own: bool) -> list[Any]:
    """Its kind, and its attributes if they count."""
    if not own:
        return [_kind(value)]
    found = dict(attributes_of(value))
    return [_kind(value), [(name, _shown(found[name], deeper)) for name in sorted(found)]]


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _shown(value: Any, deeper: int) -> Any:
    """By its content, as far as that is known."""
    if deeper == 0:
        return _kind(value)
    try:
        return content_digest(value)
    except (TypeError, RecursionError):
        pass
    if isinstance(value, Mapping):
        return [[_shown(key, deeper - 1), _shown(value[key], deeper - 1)] for key in value]
    if isinstance(value, (list, tuple)):
        return [_shown(each, deeper - 1) for each in value]
    return _callable(value, deeper - 1, own=False) or [_kind(value)]
