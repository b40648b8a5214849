"""Arrays of the script's own that its loop's bodies change, and that are no part of the state.

A moving average of the weights that a callback keeps, say: no gradient and no parameter depends on
it, so nothing else shows that a process that joins later has another. Not all are found; what is
found is to be true, so nothing is said where it isn't sure.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np

from elasticd.train.states.average import EMA
from elasticd.train.steps import randomness
from elasticd.train.steps.generators import attributes
from elasticd.train.steps.reach import MOST_ITEMS, is_ours, reached

MOST_HOLDERS = 5000
"""Of the script's variables: things that are looked into."""
_MOST_OF_STATE = 200_000
"""Things of the state that are looked into. If there are more nothing is said."""
_DEEPEST = 12
_DEEPEST_OF_STATE = 100
_MOST_BYTES = 64 << 20
"""Of an array that would have to be copied to be read."""
_MOST_READ = 256 << 10
"""Bytes of an array, from its beginning."""
_FIRST = 16
"""Numbers of an array."""
_NEAR = 0.5
"""A share of the weights' size: so far from them an average of them may be."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), np.ndarray)


class ScriptArray(NamedTuple):
    """An array, and the variable or attribute that leads to it."""

    holder: str
    is_attribute: bool
    array: mx.array


class _Mark(NamedTuple):
    """Of an array: another one for other bits, all but always."""

    kind: Any
    bits: int
    first: tuple[float, ...]
    """Its first numbers."""


class Unkept:
    """Of one run; for the training thread alone. No array is kept between two looks."""

    def __init__(self, model: Any, optimizer: Any, kept: Any, data: Any) -> None:
        """These are kept anyway, and so is what ``data`` can come to: it is drawn again."""
        self._model = model
        self._state: list[Any] = [model, optimizer, kept]
        self._reaching: list[Any] = [data]
        self._anew: Container[str] = ()
        self._named: set[str] = set()
        self._marks: dict[str, _Mark] = {}
        """Of the arrays that were there at the last look, by path."""
        self._weights: set[tuple[Any, int]] = set()
        """Of the model at the last look."""
        self._first: dict[str, Any] = {}
        """By path of what kind they were when the loop began."""

    def keep(self, thing: Any) -> None:
        """``thing`` is part of the state from now on, and so is what its functions come to."""
        self._state.append(thing)
        self._reaching.append(thing)

    def loop_begins(self, here: Mapping[str, Any], anew: Container[str] = ()) -> None:
        """``here`` is what the script's names stand for. Those that the loop's body assigns
        ``anew`` are one step's own, as far as anybody can tell."""
        self._anew = anew
        with suppress(Exception):  # a job doesn't end for this, whatever the script holds
            held = self._look(here)
            self._marks = _marks_of(held)
            self._weights = _bits_of(self._weights_now().values())
            self._first = {path: _kind(one.array) for path, one in held.items()}

    def body_ends(self, here: Mapping[str, Any]) -> list[str]:
        """What this body has changed, and none before, each in a sentence."""
        try:
            found = self._changed(here)
        except Exception:  # as above
            found = []
        self._named |= {*found}
        return [
            f"{name}: the loop's body changes these arrays, and they are the script's own: a "
            "process that joins later begins with those from above the loop. If a later step, or "
            "what stands behind the loop, needs them, keep them in run.state or give what holds "
            "them to run.track"
            for name in found
        ]

    def _changed(self, here: Mapping[str, Any]) -> list[str]:
        held = self._look(here)
        before, self._marks = self._marks, _marks_of(held)
        weights = self._weights_now()
        known, self._weights = self._weights, _bits_of(weights.values())
        known = known | self._weights
        state: set[str] = set()
        others: set[str] = set()
        for path, mark in self._marks.items():
            was = before.get(path)
            if was is None or was.kind != mark.kind or was.bits == mark.bits:
                continue
            if (mark.kind, mark.bits) in known:  # the body has looked at the model
                continue
            is_old = self._first.get(path) == mark.kind
            (state if is_old else others).add(held[path].holder)
        # What came later than the loop began is one step's own, mostly; but for an average.
        later = others - state - self._named
        state |= {holder for holder in later if self._is_average(holder, held, weights)}
        return sorted(state - self._named)

    def _is_average(
        self, holder: str, held: Mapping[str, ScriptArray], weights: Mapping[str, _Mark]
    ) -> bool:
        """Whether an attribute has all the names and shapes of the model's weights, as gradients
        have, too, and numbers near to theirs."""
        arrays = {p.removeprefix(holder): one for p, one in held.items() if one.holder == holder}
        marks = {path: _mark(one.array) for path, one in arrays.items()}
        if len(weights) < 2 or marks.keys() != weights.keys():
            return False
        apart = size = 0.0
        for path, mark in marks.items():
            weight = weights[path]
            if mark is None or mark.kind[0] != weight.kind[0] or not arrays[path].is_attribute:
                return False
            apart += sum(abs(m - w) for m, w in zip(mark.first, weight.first, strict=True))
            size += sum(map(abs, weight.first))
        return apart <= _NEAR * size

    def _weights_now(self) -> dict[str, _Mark]:
        """By path; of those that have one."""
        found = _Look(_MOST_OF_STATE).at(self._model.trainable_parameters(), all_of=True)
        marks = {path: _mark(one.array) for path, one in found.items()}
        return {path: mark for path, mark in marks.items() if mark is not None}

    def _look(self, here: Mapping[str, Any]) -> dict[str, ScriptArray]:
        """None of it if it can't be said what is state."""
        come_to = reached(self._reaching, lambda thing: True)
        look = _Look(_MOST_OF_STATE)
        for thing in self._state:
            look.at(thing, all_of=True)
        if look.is_spent or not come_to.all_seen:
            return {}
        for thing in come_to.found:
            look.at_once(thing)
        look.begin(MOST_HOLDERS)
        found: dict[str, ScriptArray] = {}
        for name, value in here.items():
            if name not in self._anew:
                found |= look.at(value, name)
        return found


class _Look:
    """One look at what is held: each thing once, so what was looked at first isn't found again."""

    def __init__(self, most: int) -> None:
        """``most``: things that are looked into."""
        self._seen: dict[int, Any] = {}  # kept, so that no other object gets its id meanwhile
        self._all = False
        self._left = most

    def begin(self, most: int) -> None:
        """Look into so many more."""
        self._left = most

    @property
    def is_spent(self) -> bool:
        """Whether something wasn't looked into, as there was too much."""
        return self._left <= 0

    def at(self, value: Any, name: str = "", *, all_of: bool = False) -> dict[str, ScriptArray]:
        """The arrays that ``value`` leads to, by path. ``all_of``: whatever it is."""
        self._all = all_of
        found: dict[str, ScriptArray] = {}
        self._into(found, value, ScriptArray(name, False, value), name, 0)
        return found

    def at_once(self, thing: Any) -> None:
        """At ``thing`` and the arrays in it, but nowhere else."""
        self._seen[id(thing)] = thing
        for _, inner, _ in _within(thing) if _is_small(thing) else ():
            if type(inner) is mx.array:
                self._seen[id(inner)] = inner

    def _into(
        self, found: dict[str, ScriptArray], value: Any, held: ScriptArray, path: str, depth: int
    ) -> None:
        kind = type(value)
        if kind in _PLAIN or id(value) in self._seen:
            return
        if kind is mx.array:
            self._seen[id(value)] = value
            if not randomness.is_key(value):  # ownstate.py tells of those
                found[path] = held._replace(array=value)
            return
        deepest = _DEEPEST_OF_STATE if self._all else _DEEPEST
        if self._left > 0 and depth < deepest and (self._all or _is_open(value)):
            self._left -= 1
            self._seen[id(value)] = value
            for name, inner, is_attribute in _within(value):
                below = f"{path}.{name}"
                to = ScriptArray(below, True, inner) if is_attribute else held
                self._into(found, inner, to, below, depth + 1)


def _within(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """What it holds by name, and whether that is an attribute. No method of its own is called,
    which may do anything."""
    kind = type(value)
    if issubclass(kind, dict):
        for number, (key, inner) in enumerate(list(dict.items(value))):
            yield str(key) if type(key) in (str, int) else f"({number})", inner, False
    for base in (list, tuple):
        if issubclass(kind, base):
            for number, inner in enumerate([*base.__iter__(value)]):
                yield str(number), inner, False
    if kind is FunctionType:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                yield name, cell.cell_contents, True
            except ValueError:  # not assigned yet
                continue
    own = vars(value) if issubclass(kind, optim.Optimizer) else attributes(value)
    for name, inner in list(own.items()):
        yield str(name), inner, True


def _is_small(value: Any) -> bool:
    """Whether it holds no data, as a long list does."""
    kind = type(value)
    bases = [base for base in (dict, list, tuple) if issubclass(kind, base)]
    return all(base.__len__(value) <= MOST_ITEMS for base in bases)


def _is_open(value: Any) -> bool:
    """Whether it may hold arrays of the script's own."""
    kind = type(value)
    if issubclass(kind, (dict, list, tuple)):
        return _is_small(value)
    if kind is FunctionType or issubclass(kind, EMA):
        return True
    return not is_ours(kind) and not issubclass(kind, optim.Optimizer) and bool(attributes(value))


def _kind(array: mx.array) -> tuple[tuple[int, ...], mx.Dtype]:
    return tuple(array.shape), array.dtype


def _bits_of(marks: Iterable[_Mark]) -> set[tuple[Any, int]]:
    return {(mark.kind, mark.bits) for mark in marks}


def _marks_of(held: Mapping[str, ScriptArray]) -> dict[str, _Mark]:
    """By path; of those that have one. A single number is no average of weights."""
    marks = {path: _mark(one.array) for path, one in held.items() if one.array.size > 1}
    return {path: mark for path, mark in marks.items() if mark is not None}


def _mark(array: mx.array) -> _Mark | None:
    """None of those that nobody has evaluated: that is left to the script. It may cost memory, and
    MLX raises where a trace's placeholder was kept, or a file is gone."""
    try:
        if not _is_evaluated(array):
            return None
        if array.nbytes > _MOST_BYTES and not memoryview(array).c_contiguous:  # type: ignore[arg-type]
            return None
        flat = mx.contiguous(array).reshape(-1)
        data = memoryview(flat.view(mx.uint8))  # type: ignore[arg-type]
        first: Any = flat[:_FIRST].astype(mx.float32).tolist()
        return _Mark(_kind(array), zlib.crc32(data[:_MOST_READ]), tuple(first))
    except Exception:  # whatever it is, the job goes on without this mark
        return None


def _is_evaluated(array: mx.array) -> bool:
    """Whether no operation is left to be made for it, of the graph that MLX draws."""
    graph = io.StringIO()
    mx.export_to_dot(graph, array)
    return "shape=rectangle" not in graph.getvalue()
