"""What a script's code may come to from given objects: what they hold, and the functions that they
call, with the variables around those and the globals that those name.

The interpreter itself is asked what an object refers to, so it doesn't matter where a script keeps
a thing: in slots, in a closure, in a ``partial``, or in a generator's frame.
"""

from __future__ import annotations

import gc
import random
import site
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np

MOST_ITEMS = 1000
"""A container with more holds data."""
MOST_REACHED = 50_000
"""Objects that are looked at, in two tenths of a second."""

_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, deque)
_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.ndarray, mx.array)
_CLOSED = (types.FrameType, types.CodeType, optim.Optimizer)
"""An optimizer's own is part of the state."""
_ELSEWHERE = frozenset((
    "_thread", "_threading_local", "asyncio", "concurrent", "logging", "multiprocessing", "socket",
    "subprocess", "tempfile", "threading",
))  # fmt: skip
"""Whose objects, and those of classes made from theirs, are not looked into: other threads and
processes draw from what they hold whenever they like."""
_LIBRARY = "elasticd."
_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_FOLDERS = [*map(sysconfig.get_path, _PATHS), *site.getsitepackages(), site.getusersitepackages()]
_INSTALLED = tuple(f"{folder}/" for folder in _FOLDERS)


class ReachedObjects(NamedTuple):
    """What was looked for, each once, the nearest first."""

    found: list[Any]
    all_seen: bool
    """Else there are too many objects, and it isn't known what is among the others."""


def is_global(value: Any) -> bool:
    """Whether ``random`` or ``numpy.random`` themselves draw from it: those are seeded anyway."""
    legacy: Any = np.random.mtrand._rand
    bits = legacy._bit_generator
    own = (getattr(random, "_inst", None), legacy, bits, bits.seed_seq)
    return any(value is one for one in own)


def reached(starts: Iterable[Any], wanted: Callable[[Any], bool]) -> ReachedObjects:
    """The ``wanted`` ones among all that can be come to."""
    found: list[Any] = []
    waiting: deque[Any] = deque()
    seen: dict[int, Any] = {}  # kept, so that no other object gets its id meanwhile

    def queue(values: Iterable[Any]) -> None:
        for value in values:
            if type(value) not in _PLAIN and id(value) not in seen and not is_global(value):
                seen[id(value)] = value
                waiting.append(value)

    queue(starts)
    while waiting and len(seen) < MOST_REACHED:
        value = waiting.popleft()
        if wanted(value):
            found.append(value)
        queue(_following(value))
    return ReachedObjects(found, not waiting)


def _following(value: Any) -> Iterator[Any]:
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        if is_scripts(vars(value)):
            yield from list(vars(value).values())
    elif kind is types.FunctionType:
        yield from _around(value)
    elif issubclass(kind, type):
        yield from _of_class(value)
    elif not _is_closed(kind):
        held = next((base for base in _CONTAINERS if issubclass(kind, base)), None)
        if held is None or held.__len__(value) <= MOST_ITEMS:
            yield from gc.get_referents(value)  # its class among them


def _around(function: types.FunctionType) -> Iterator[Any]:
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from list(vars(function).values())
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    names = function.__globals__
    if is_scripts(names):
        yield from (names[name] for name in sorted(_names(function.__code__)) if name in names)


def _of_class(found: type) -> Iterator[Any]:
    module = _module_of(found)
    if _is_closed(found) or module.startswith("mlx.") or module in ("builtins", "numpy"):
        return
    held = type.__getattribute__(found, "__dict__")
    methods = [value for value in list(held.values()) if type(value) is types.FunctionType]
    if not methods or any(is_scripts(method.__globals__) for method in methods):
        yield from list(held.values())
        yield from type.__getattribute__(found, "__bases__")


def _is_closed(kind: type) -> bool:
    if issubclass(kind, _CLOSED) or is_ours(kind):
        return True
    bases = type.__getattribute__(kind, "__mro__")
    return any(_module_of(base).partition(".")[0] in _ELSEWHERE for base in bases)


def is_ours(kind: type) -> bool:
    """Whether a class is of this library."""
    return _module_of(kind).startswith(_LIBRARY)


def _module_of(found: type) -> str:
    """Where a class is from; not by its metaclass, which may do anything."""
    module = type.__getattribute__(found, "__module__")
    return module if isinstance(module, str) else ""


def is_scripts(module: dict[str, Any]) -> bool:
    """Whether globals are of somebody's own file, and not of an installed library."""
    file = module.get("__file__")
    if not isinstance(file, str):  # typed in, or built in
        return module.get("__spec__") is None
    name = str(module.get("__name__"))
    return not file.startswith(_INSTALLED) and not name.startswith(_LIBRARY) and name != "elasticd"


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found
