"""What a model holds besides the arrays of its state, and what lies beside the model, so that any
change is seen.

Plain values and containers are compared by what they are; functions, modules and other objects by
identity, and what is in such objects is looked at too. Of their classes, plain values are looked
into, and the rest is compared by identity. A picture holds what it shows: the id of
something that is gone is never taken for another's.
"""

from __future__ import annotations

import array
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import random
import re
import threading
import types
import uuid
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module

from elasticd.train.states.holders import is_plain
from elasticd.train.states.trees import same_float, same_place, share

MOST_VALUES = 10_000
"""Of one attribute."""
MOST_BYTES = 1 << 20
"""Of one array of NumPy."""
DEEPEST = 60

_BY_VALUE = frozenset((type(None), bool, int, float, str, bytes, complex, tuple, frozenset))
_FIXED = (
    type, enum.Enum, types.ModuleType, types.FunctionType, types.BuiltinFunctionType,
    np.dtype, mx.Dtype, mx.Device, mx.Stream, range, slice, re.Pattern, pathlib.PurePath,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    fractions.Fraction, uuid.UUID, weakref.ref, type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
"""What never changes, or holds nothing that a loss could read."""

Where = tuple[Any, str, Any]
"""What it is in; "." or "[", and its name there."""


class Picture:
    """Of one moment."""

    def __init__(
        self, model: Module, beside: Mapping[str, Any] = types.MappingProxyType({})
    ) -> None:
        """``beside``: other things, by name, whose arrays count too."""
        self._marks: list[Any] = []
        self._places: list[Where] = []
        self.unseen = ""
        """What can't be compared, and why; empty if all can."""
        self._seen: dict[int, tuple[int, Any]] = {}
        self._later: list[tuple[Module, Where]] = []
        self._classes: dict[type, Where] = {}
        self._start = 0
        try:
            self._tree(model, ((), "", "model"), True, 0)
            for name, value in beside.items():
                self._start, there = len(self._marks), ((), "", name)
                self._add(name, there)
                self._tree(value, there, False, 0)
            # Arrays of the model's state are no constants of a trace. All are found by now.
            while self._later:
                module, where = self._later.pop()
                for name, value in vars(module).items():
                    self._start = len(self._marks)
                    self._tree(value, (where, ".", name), False, 0)
            self._look_at_classes()
        except _Unseen as error:
            self.unseen = f"{_path(error.where)} {error.why}"
        del self._seen, self._later, self._classes

    def __len__(self) -> int:
        return len(self._marks)

    def difference(self, now: Picture) -> str:
        """The path of the first thing that is otherwise ``now``; empty if all is as it was."""
        if self.unseen or now.unseen:
            return self.unseen or now.unseen
        for n, (one, other) in enumerate(zip(self._marks, now._marks, strict=False)):
            if one is not other and not _same(one, other):
                return _path(now._places[n])
        if len(self) != len(now):
            longer = max(self, now, key=len)
            return _path(longer._places[min(len(self), len(now))])
        return ""

    def _add(self, mark: Any, where: Where) -> None:
        self._marks.append(mark)
        self._places.append(where)
        if len(self._marks) - self._start > MOST_VALUES:
            while where[1] == "[":
                where = where[0]
            raise _Unseen(where, f"holds more than {MOST_VALUES} values")

    def _look_at_classes(self) -> None:
        """What is read through their instances, and changed for all of these at once."""
        left = self._classes
        seen: set[type] = set()
        while left:
            kind, where = left.popitem()
            for base in kind.__mro__:
                if base in seen or base.__module__ == "builtins":
                    continue
                seen.add(base)
                for name, value in list(vars(base).items()):
                    self._start, there = len(self._marks), (where, ".", name)
                    self._add(name, there)
                    # Of what else a class may hold much changes by itself, as a logger does.
                    if is_plain(value) or isinstance(value, type):
                        self._tree(value, there, False, 0)
                    else:
                        self._add(value, there)

    def _tree(self, value: Any, where: Where, inputs: bool, depth: int) -> None:
        """``inputs``: whether arrays in it belong to the model's state."""
        kind = type(value)
        if kind in _BY_VALUE and kind is not tuple and kind is not frozenset:
            self._add(value, where)
        elif isinstance(value, mx.array):
            self._add(mx.array if inputs else _Constant(value), where)
        elif isinstance(value, np.generic):
            self._add((value.dtype.str, value.tobytes()), where)
        elif isinstance(value, _FIXED) or kind is object:
            self._add(value, where)
            if isinstance(value, type):
                self._classes.setdefault(value, where)
        elif id(value) in self._seen:
            self._add(self._seen[id(value)][0], where)
        elif depth > DEEPEST:
            raise _Unseen(where, "is nested too deep")
        else:
            # Held, for what is made here must not give its id to the next.
            self._seen[id(value)] = (len(self._marks), value)
            self._content(value, where, inputs, depth + 1)

    def _content(self, value: Any, where: Where, inputs: bool, depth: int) -> None:
        kind = type(value)
        if isinstance(value, Module):
            self._add(value, where)
            self._tree(kind, where, False, depth)
            self._later.append((value, where))
            for name, item in value.items():
                self._start = len(self._marks)
                self._add(name, (where, ".", name))
                self._tree(item, (where, ".", name), inputs, depth)
            return
        known = self._items(value, where, inputs, depth)
        parts = list(attributes_of(value))
        if parts or (not known and hasattr(value, "__dict__")):
            self._add(value, where)
            self._tree(kind, where, False, depth)
            for name, item in parts:
                self._add(name, where)
                self._tree(item, (where, ".", name), False, depth)
        elif not known:
            if not callable(value):
                raise _Unseen(where, f"is a {kind.__name__}, which can't be compared")
            self._add(value, where)

    def _items(self, value: Any, where: Where, inputs: bool, depth: int) -> bool:
        """What is in containers, and in other things that are known; whether it is one."""
        content: Any
        match value:
            case dict() | types.MappingProxyType():
                self._add((type(value), len(value)), where)
                for key, item in value.items():
                    self._tree(key, where, False, depth)
                    self._tree(item, (where, "[", key), inputs, depth)
                return True
            case list() | tuple() | deque():
                content = value
                inputs = inputs and not isinstance(value, deque)
            case set() | frozenset():
                self._add(frozenset((type(item), item) for item in value), where)
                content, inputs = [i for i in value if type(i) not in _BY_VALUE], False
            case np.ndarray():
                content, inputs = self._numpy(value, where), False
            case bytearray() | array.array():
                content = [bytes(value)]
            case random.Random():
                content = [value.getstate()]
            case np.random.Generator():
                content = [value.bit_generator.state]
            case np.random.RandomState():
                content = [value.get_state()]
            case functools.partial():
                content = [value.func, value.args, value.keywords]
            case types.MethodType():
                content = [value.__func__, value.__self__]
            case _:
                return False
        self._add((type(value), len(content)), where)
        for n, item in enumerate(content):
            self._tree(item, (where, "[", n), inputs, depth)
        return True

    def _numpy(self, value: Any, where: Where) -> list[Any]:
        self._add((value.dtype.str, value.shape), where)
        if value.dtype.hasobject:
            return list(value.flat)
        if value.nbytes > MOST_BYTES:
            raise _Unseen(where, f"is an array of NumPy with more than {MOST_BYTES} bytes")
        return [value.tobytes()]


class _Unseen(Exception):
    def __init__(self, where: Where, why: str) -> None:
        self.where, self.why = where, why


class _Constant:
    """An array that is not in the model's state: what is written to it in place shows, too."""

    def __init__(self, held: mx.array) -> None:
        self._array, self._content = held, share(held)

    def same(self, other: _Constant) -> bool:
        if self._array is not other._array:
            return False
        try:
            return same_place(self._content, other._content)
        except (RuntimeError, ValueError):  # what a trace has left has no content
            return False


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, by name, in its slots too."""
    yield from getattr(value, "__dict__", {}).items()
    kind: Any = type(value)
    for name in _slots(kind):
        if hasattr(value, name):
            yield name, getattr(value, name)


@functools.lru_cache(maxsize=1000)
def _slots(kind: type) -> tuple[str, ...]:
    found = []
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else tuple(names):
            private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


def _same(one: Any, other: Any) -> bool:
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is float:
        return same_float(one, other)
    if kind is complex:
        return repr(one) == repr(other)
    if kind is _Constant:
        return bool(one.same(other))
    return kind in _BY_VALUE and bool(one == other)


def _path(where: Where) -> str:
    words = []
    while where:
        parent, sort, name = where
        words.append(f"[{name!r}]" if sort == "[" else f"{sort}{name}")
        where = parent
    return "".join(reversed(words))
