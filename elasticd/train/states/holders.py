"""Where modules, optimizers and their schedules keep plain Python values, by name.

A holder is one object with such values. ``model.layers.0:temperature`` is the value ``temperature``
of the holder ``model.layers.0``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import CellType, FunctionType, MethodType
from typing import Any, Protocol

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx.nn.layers.base import Module

from elasticd.errors import UsageError
from elasticd.train.states.containers import put_state
from elasticd.train.states.trees import DEEPEST

MOST_LEAVES = 1000
"""What has more is too long to travel with every state."""
_DEEPEST = 4
_CHANGE_IN_PLACE = (dict, list, tuple, np.ndarray)
FROZEN = "_no_grad"
"""Where a module has the names of those of its parameters that are not trained: a set."""
_OF_OPTIMIZERS = frozenset(("_initialized", "_state", "_schedulers", "filters"))


class Holder(Protocol):
    """One object that holds plain values."""

    def values(self) -> dict[str, Any]:
        """Those that can be stored, by name."""

    def put(self, name: str, value: Any) -> None:
        """Set one."""

    def drop(self, name: str) -> None:
        """Take one away."""

    def found(self, name: str) -> Any:
        """What is there, even if it can't be stored; None if nothing is."""


def is_plain(value: Any) -> bool:
    """Whether it can be stored: numbers, strings, arrays, and short lists and dicts of them."""
    return _leaves(value) <= MOST_LEAVES


def is_tool(name: str, value: Any) -> bool:
    """Whether an optimizer's attribute is taken for something that it works with, and makes again
    where it isn't there: what can be called, or is private."""
    return name.startswith("_") or callable(value) or isinstance(value, optim.Optimizer)


def unkept(name: str, value: Any) -> UsageError:
    """What to say of an optimizer's attribute that changes and can't be stored."""
    return UsageError(
        f"{name} is a {type(value).__name__} that changes, and it can't be stored:"
        f" keep numbers, arrays, or lists and dicts of up to {MOST_LEAVES} of them instead"
    )


def _leaves(value: Any, depth: int = 0) -> int:
    if value is None or isinstance(value, (bool, int, float, str, mx.array)):
        return 1
    if isinstance(value, (np.ndarray, np.generic)):
        return int(value.size) if not value.dtype.hasobject else MOST_LEAVES + 1
    if type(value) not in (dict, list, tuple) or len(value) > MOST_LEAVES or depth > DEEPEST:
        return MOST_LEAVES + 1
    if isinstance(value, dict):
        if not all(key is None or isinstance(key, (bool, int, float, str)) for key in value):
            return MOST_LEAVES + 1
        value = value.values()
    count = 1
    for item in value:
        count += _leaves(item, depth + 1)
        if count > MOST_LEAVES:
            break
    return count


class _OfObject:
    """The attributes of an object."""

    def __init__(self, thing: Any, hidden: frozenset[str] = frozenset()) -> None:
        self._thing, self._hidden = thing, hidden

    def values(self) -> dict[str, Any]:
        found = vars(self._thing).items()
        return {k: v for k, v in found if k not in self._hidden and is_plain(v)}

    def put(self, name: str, value: Any) -> None:
        vars(self._thing)[name] = value

    def drop(self, name: str) -> None:
        vars(self._thing).pop(name, None)

    def found(self, name: str) -> Any:
        return vars(self._thing).get(name)


class _OfModule:
    """What a module holds besides arrays and modules: which of its parameters are frozen, too, and
    whether it is in training mode."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._seen: tuple[dict[str, Any], int] | None = None
        self._found: dict[str, Any] = {}
        self._in_place = False

    def values(self) -> dict[str, Any]:
        here, size = vars(self._module), len(self._module)
        same = self._seen is not None and size == self._seen[1] and _same(here, self._seen[0])
        # There are many modules, and they are asked after every step.
        if not same or self._in_place:
            frozen = frozenset(here.get(FROZEN, ()))
            self._seen, self._found = ({**here, FROZEN: frozen}, size), self._look()
            self._in_place = any(isinstance(v, _CHANGE_IN_PLACE) for v in self._found.values())
            self._found[FROZEN] = sorted(frozen)
        return self._found

    def _look(self) -> dict[str, Any]:
        found = {k: v for k, v in vars(self._module).items() if k != FROZEN and is_plain(v)}
        # Lists and dicts without an array or a module are no parameters.
        inner = {k: v for k, v in self._module.items() if _is_bare(v) and is_plain(v)}
        return found | inner

    def put(self, name: str, value: Any) -> None:
        setattr(self._module, name, set(value) if name == FROZEN else value)

    def drop(self, name: str) -> None:
        vars(self._module).pop(name, None)
        self._module.pop(name, None)

    def found(self, name: str) -> Any:
        return vars(self._module).get(name, self._module.get(name))


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """By identity: 1 is not True, and some arrays can't be compared."""
    return one.keys() == other.keys() and all(
        value is other[name] or (name == FROZEN and value == other[name])
        for name, value in one.items()
    )


def _is_bare(value: Any) -> bool:
    if isinstance(value, (mx.array, Module)):
        return False
    if isinstance(value, dict):
        return all(_is_bare(item) for item in value.values())
    return not isinstance(value, (list, tuple)) or all(_is_bare(item) for item in value)


class _OfCells:
    """The variables that a function has from around it."""

    def __init__(self, names: tuple[str, ...], cells: tuple[CellType, ...]) -> None:
        self._cells = dict(zip(names, cells, strict=True))

    def values(self) -> dict[str, Any]:
        return {k: v for k, v in self.contents() if is_plain(v)}

    def contents(self) -> Iterator[tuple[str, Any]]:
        """All of them."""
        for name, cell in self._cells.items():
            try:
                yield name, cell.cell_contents
            except ValueError:  # not assigned yet
                continue

    def put(self, name: str, value: Any) -> None:
        self._cells[name].cell_contents = value

    def drop(self, name: str) -> None:
        pass

    def found(self, name: str) -> Any:
        return dict(self.contents()).get(name)


class _OfArguments:
    """What was bound to a function, and changes in place: the script may have it, too."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = {k: v for k, v in given.items() if isinstance(v, (dict, list))}

    def values(self) -> dict[str, Any]:
        return {k: v for k, v in self._given.items() if is_plain(v)}

    def put(self, name: str, value: Any) -> None:
        there = self._given[name]
        there.clear()
        if isinstance(there, dict):
            there.update(value)
        else:
            there.extend(value)

    def drop(self, name: str) -> None:
        pass

    def found(self, name: str) -> Any:
        return self._given.get(name)


class _OfState:
    """An object that gives and takes its state as a whole."""

    def __init__(self, get: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self._get, self._put = get, put

    def values(self) -> dict[str, Any]:
        return {"state": self._get()}

    def put(self, name: str, value: Any) -> None:
        self._put(value)

    def drop(self, name: str) -> None:
        pass

    def found(self, name: str) -> Any:
        return self._get()


def modules_of(thing: Any) -> list[Any]:
    """A module with all that are in it; none of anything else."""
    if not isinstance(thing, Module):
        return []
    found: list[Any] = thing.modules()  # type: ignore[no-untyped-call]
    return found


def holders_of(name: str, thing: Any) -> dict[str, Holder]:
    """The holders of a module or an optimizer that is called ``name``, by their own names."""
    found: dict[str, Holder] = {}
    if isinstance(thing, Module):
        modules: list[tuple[str, Module]] = thing.named_modules()  # type: ignore[no-untyped-call]
        for path, module in modules:
            found[f"{name}.{path}" if path else name] = _OfModule(module)
    elif isinstance(thing, optim.Optimizer):
        _of_optimizer(name, thing, found)
    return found


def optimizers_of(name: str, optimizer: Any) -> Iterator[tuple[str, Any]]:
    """An optimizer, and those that it joins."""
    yield name, optimizer
    if isinstance(optimizer, optim.MultiOptimizer):
        for number, part in enumerate(optimizer.optimizers):
            yield from optimizers_of(f"{name}.{number}", part)


def _of_optimizer(name: str, optimizer: optim.Optimizer, found: dict[str, Holder]) -> None:
    found[name] = _OfObject(optimizer, _OF_OPTIMIZERS)
    for key, value in sorted(vars(optimizer).items()):
        if key == "_schedulers":
            for of, schedule in sorted(value.items()):
                _of_schedule(f"{name}.{of}", schedule, found)
        elif key == "optimizers" and isinstance(optimizer, optim.MultiOptimizer):
            for number, part in enumerate(value):
                _of_optimizer(f"{name}.{number}", part, found)
        elif key not in _OF_OPTIMIZERS:
            _of_part(f"{name}.{key}", value, found)


def _of_part(name: str, value: Any, found: dict[str, Holder]) -> None:
    """What an optimizer has for an attribute: another one, a generator, or some of them."""
    if isinstance(value, optim.Optimizer):
        _of_optimizer(name, value, found)
        # Its arrays are not among those of the optimizer that holds it.
        found[f"{name}.arrays"] = _OfState(
            lambda: value.state, lambda saved: put_state(value, saved)
        )
    elif isinstance(value, random.Random):
        found[name] = _OfState(value.getstate, value.setstate)
    elif isinstance(value, np.random.Generator):
        bits = value.bit_generator
        found[name] = _OfState(lambda: bits.state, lambda saved: setattr(bits, "state", saved))
    elif isinstance(value, (list, tuple, dict)):
        for key, item in _items(value):
            _of_part(f"{name}.{key}", item, found)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """What is in a list, tuple or dict, with what it is called there; of anything else itself."""
    if isinstance(value, dict):
        return islice(value.items(), MOST_LEAVES)
    return enumerate(value[:MOST_LEAVES] if isinstance(value, (list, tuple)) else [value])


def _of_schedule(name: str, schedule: Any, found: dict[str, Holder], depth: int = 0) -> None:
    """A function with what it has from around it, a partial one with its arguments, or an object
    that is called; and what of these can be called itself."""
    if isinstance(schedule, MethodType):
        schedule = schedule.__self__
    if depth > _DEEPEST or isinstance(schedule, (type, Module, optim.Optimizer)):
        return
    inner: dict[str, Any] = {}
    if isinstance(schedule, FunctionType):
        names, cells = schedule.__code__.co_freevars, schedule.__closure__ or ()
        found[name] = held = _OfCells(names, cells)
        inner = dict(held.contents())
    elif isinstance(schedule, partial):
        given = dict(enumerate(schedule.args)) | schedule.keywords
        inner = {f"arguments.{key}": value for key, value in given.items()}
        found[f"{name}.arguments"] = _OfArguments({str(k): v for k, v in given.items()})
        _of_schedule(name, schedule.func, found, depth + 1)
    elif hasattr(schedule, "__dict__"):
        found[name] = _OfObject(schedule)
        inner = vars(schedule)
    for of, value in inner.items():
        for key, part in _items(value):
            if callable(part):
                _of_schedule(f"{name}.{of}.{key}", part, found, depth + 1)
