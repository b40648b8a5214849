"""Arrays of the script's own that its loop's bodies change, and that are no part of the state.

A moving average of the weights that a callback keeps, say: no gradient and no parameter depends on
it, so nothing else shows that a process that joins later has another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.optimizers as optim

from elasticd.train.states.average import EMA
from elasticd.train.steps.generators import attributes
from elasticd.train.steps.reach import MOST_ITEMS

MOST_HOLDERS = 5000
"""Things that are looked into."""
_DEEPEST = 12
_MOST_BYTES = 64 << 20
"""Of an array that is read through; a bigger one is told by its object."""
_LIBRARY = "elasticd."


class ScriptArray(NamedTuple):
    """An array, and the variable or attribute that leads to it."""

    holder: str
    is_attribute: bool
    array: mx.array


class _Mark(NamedTuple):
    """Of an array: another one for other bits, all but always."""

    kind: Any
    bits: int


class Unkept:
    """Of one run; for the training thread alone. No array is kept between two looks."""

    def __init__(self, model: Any, *state: Any) -> None:
        """``state`` is kept anyway, and so is ``model``."""
        self._model = model
        self._state: list[Any] = []
        for thing in (model, *state):
            self.keep(thing)
        self._named: set[str] = set()
        self._marks: dict[str, _Mark] = {}
        """Of the arrays that were there at the last look, by path."""
        self._first: dict[str, Any] = {}
        """By path of what kind they were when the loop began."""

    def keep(self, thing: Any) -> None:
        """``thing`` is part of the state from now on."""
        self._state.append(thing)

    def loop_begins(self, here: Mapping[str, Any]) -> None:
        """``here`` is what the script's names stand for."""
        self._marks = {path: _mark(one.array) for path, one in self._look(here).items()}
        self._first = {path: mark.kind for path, mark in self._marks.items()}

    def body_ends(self, here: Mapping[str, Any]) -> list[str]:
        """What this body has changed, and none before, each in a sentence."""
        held = self._look(here)
        before, self._marks = self._marks, {p: _mark(one.array) for p, one in held.items()}
        changed = [
            path
            for path, mark in self._marks.items()
            if path in before and before[path].kind == mark.kind and before[path] != mark
        ]
        state = {held[p].holder for p in changed if self._first.get(p) == self._marks[p].kind}
        others = {held[path].holder for path in changed} - state - self._named
        state |= {holder for holder in others if self._is_like_weights(holder, held)}
        found = sorted(state - self._named)
        self._named |= {*found}
        return [
            f"{name}: the loop's body changes these arrays, and they are the script's own: a "
            "process that joins later begins with those from above the loop. If a later step, or "
            "what stands behind the loop, needs them, keep them in run.state or give what holds "
            "them to run.track"
            for name in found
        ]

    def _is_like_weights(self, holder: str, held: Mapping[str, ScriptArray]) -> bool:
        """Whether an attribute that may have come later has all the shapes of the model's weights:
        what has others, and wasn't there before the loop, is one step's own, mostly."""
        arrays = [one for one in held.values() if one.holder == holder]
        if not all(one.is_attribute for one in arrays):
            return False
        wanted = _shapes(_Look().at(self._model.trainable_parameters()).values())
        return len(wanted) > 1 and _shapes(arrays) == wanted

    def _look(self, here: Mapping[str, Any]) -> dict[str, ScriptArray]:
        look = _Look()
        for thing in self._state:
            look.at(thing, is_state=True)
        found: dict[str, ScriptArray] = {}
        for name, value in here.items():
            found |= look.at(value, name)
        return found


class _Look:
    """One look at what is held: each thing once, so what was looked at first isn't found again."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # kept, so that no other object gets its id meanwhile
        self._all = False

    def at(self, value: Any, name: str = "", *, is_state: bool = False) -> dict[str, ScriptArray]:
        """The arrays that ``value`` leads to, by path. ``is_state``: all of it, whatever it is."""
        self._all = is_state
        found: dict[str, ScriptArray] = {}
        self._into(found, value, ScriptArray(name, False, value), name, 0)
        return found

    def _into(
        self, found: dict[str, ScriptArray], value: Any, held: ScriptArray, path: str, depth: int
    ) -> None:
        is_array = type(value) is mx.array
        if id(value) in self._seen or not (is_array or self._all or _is_open(value)):
            return
        if is_array:
            self._seen[id(value)] = value
            if not _is_key(value):
                found[path] = held._replace(array=value)
        elif depth < _DEEPEST and len(self._seen) < MOST_HOLDERS:
            self._seen[id(value)] = value
            for name, inner, is_attribute in _within(value):
                below = f"{path}.{name}"
                to = ScriptArray(below, True, inner) if is_attribute else held
                self._into(found, inner, to, below, depth + 1)


def _within(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """What it holds by name, and whether that is an attribute."""
    if isinstance(value, dict):
        yield from ((str(name), inner, False) for name, inner in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), inner, False) for number, inner in enumerate(list(value)))
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                yield name, cell.cell_contents, True
            except ValueError:  # not assigned yet
                continue
    own = vars(value) if isinstance(value, optim.Optimizer) else attributes(value)
    yield from ((name, inner, True) for name, inner in list(own.items()))


def _is_open(value: Any) -> bool:
    """Whether it may hold arrays of the script's own."""
    if isinstance(value, (dict, list, tuple)):
        return len(value) <= MOST_ITEMS
    if isinstance(value, (FunctionType, EMA)):
        return True
    kind = type(value)
    is_ours = str(kind.__module__).startswith(_LIBRARY)
    return not is_ours and not issubclass(kind, optim.Optimizer) and bool(attributes(value))


def _shapes(arrays: Iterable[ScriptArray]) -> list[tuple[int, ...]]:
    return sorted(tuple(one.array.shape) for one in arrays)


def _is_key(array: mx.array) -> bool:
    """Of those another part tells."""
    return array.dtype == mx.uint32 and array.shape == (2,)


def _mark(array: mx.array) -> _Mark:
    kind = tuple(array.shape), array.dtype
    if array.nbytes > _MOST_BYTES or array.size == 0:
        return _Mark(kind, id(array))
    words = mx.uint32 if array.nbytes % 4 == 0 else mx.uint8
    whole: Any = mx.sum(mx.contiguous(array).reshape(-1).view(words)).item()
    return _Mark(kind, whole)
