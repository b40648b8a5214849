"""Python values that optimizers and modules keep beside their arrays, as part of the state.

An optimizer that counts its updates, a module whose temperature the loop's body lowers: what such
values are belongs to a step as the arrays do. Those that have changed since the script's
``Run(…)`` are stored, given to others and put back. One that never changes is the script's own
affair: it may hold a path, or a time, that differs between nodes. What forward passes count is
left out too, since ranks make different numbers of them.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np

from elasticd.train.states.holders import (
    FROZEN,
    MOST_LEAVES,
    Holder,
    holders_of,
    is_tool,
    modules_of,
    unkept,
)
from elasticd.train.states.trees import (
    put_together,
    rebuilt,
    same_bits,
    same_float,
    share,
    take_apart,
)

ATTRIBUTES = "attributes/"
"""How the names of their arrays begin."""

_ABSENT = object()
Values = dict[str, Any]
Look = dict[str, Values]
"""What all holders had at one time, by the holder's name and the value's."""


class Attributes:
    """Of one process; for the training thread alone. A value is called ``holder:name``."""

    def __init__(self) -> None:
        self._roots: dict[str, Any] = {}
        self._modules: dict[str, list[Any]] = {}
        self._holders: dict[str, Holder] = {}
        self._of_optimizers: set[str] = set()
        self._first: Look = {}
        self._last: Look = {}
        """What was found when it was looked for changes; holders that give the same again have
        changed nothing."""
        self._changed: set[str] = set()
        self.thaws = 0
        """How often parameters may have been frozen, or not any longer."""
        self._passing: set[str] = set()
        """What forward passes change."""
        self._left_out: set[str] = set()
        self._before_pass: Look | None = None
        self._waiting: Values = {}
        """What was loaded for things that the script has not named yet."""

    def watch(self, name: str, thing: Any) -> None:
        """From now on the values of a module or an optimizer belong to the state; what was loaded
        for it is put in place."""
        self._roots[name], self._modules[name] = thing, modules_of(thing)
        holders = holders_of(name, thing)
        self._add(holders)
        if isinstance(thing, optim.Optimizer):
            self._of_optimizers |= holders.keys()
        for path in [p for p in self._waiting if p.partition(":")[0] in self._holders]:
            self._put(path, self._waiting.pop(path))
            self._changed.add(path)

    def renew(self) -> None:
        """The script may have put modules in the place of others."""
        for name, thing in self._roots.items():
            modules = modules_of(thing)
            known = self._modules.get(name, [])
            if len(modules) == len(known) and all(map(operator.is_, modules, known)):
                continue
            self._modules[name] = modules
            found = holders_of(name, thing)
            self._add({path: h for path, h in found.items() if path not in self._holders})
            self._holders |= found
            self._last = {path: last for path, last in self._last.items() if path not in found}

    def _add(self, holders: Mapping[str, Holder]) -> None:
        self._holders |= holders
        self._first |= _look(holders)

    # What forward passes do.

    def begin_pass(self) -> None:
        """The first forward pass of this process begins."""
        self._before_pass = _look(self._holders)

    def end_pass(self) -> list[str]:
        """It has ended: what it changed is no part of the state. Returns what it has switched: by
        holder and name what was None, true or false before."""
        before, self._before_pass = self._before_pass, None
        if before is None:
            return []
        changed = _differing(before, self._holders)
        self._passing |= changed
        was = {path: _of(before, path) for path in changed}
        return sorted(path for path in was if was[path] is None or type(was[path]) is bool)

    def leave_out(self, holder: str, name: str) -> None:
        """This one is no part of the state, as if a pass changed it."""
        self._passing.add(f"{holder}:{name}")

    # Reading and writing.

    def capture(self, tensors: dict[str, mx.array]) -> Values:
        """Those that are no longer as they were first, as JSON by name; their arrays are put into
        ``tensors``."""
        for path, holder in self._holders.items():
            values = holder.values()
            last = self._last.get(path)
            if values is not last:
                self._last[path] = values
                self.thaws += last is None or last.get(FROZEN) != values.get(FROZEN)
                self._changed |= _differing({path: self._first[path]}, {path: holder})
        found = {**self._waiting, **self._values(self._changed - self._passing)}
        return {
            path: take_apart(remembered(found[path]), _below(path), tensors)
            for path in sorted(found)
        }

    def install(self, stored: Mapping[str, Any], tensors: Mapping[str, mx.array]) -> None:
        """Put captured values in place; all others are as they were first."""
        loaded = {path: put_together(plain, tensors) for path, plain in stored.items()}
        for path in sorted(self._changed - self._passing - loaded.keys()):
            self._put(path, _of(self._first, path))
        here = {path for path in loaded if path.partition(":")[0] in self._holders}
        self._changed = here
        self._waiting = {path: loaded[path] for path in loaded if path not in here}
        for path in sorted(here):
            self._put(path, loaded[path])

    def update(self, stored: Mapping[str, Any], tensors: Mapping[str, mx.array]) -> None:
        """Put some captured values in place."""
        for path, plain in stored.items():
            self._put(path, put_together(plain, tensors))
            self._changed.add(path)

    def look(self) -> Look:
        """All values as they are, for :meth:`since` and :meth:`put_back`."""
        return _look(self._holders)

    def since(self, before: Look) -> Values:
        """What has changed, as it is now; by name."""
        return self._values(_differing(before, self._holders) - self._passing)

    def put_back(self, before: Look) -> None:
        """All values are as they were."""
        for path in sorted(_differing(before, self._holders)):
            self._put(path, _of(before, path))

    def _values(self, paths: set[str]) -> Values:
        """As they are now; one that is away, or too long by now, isn't among them.

        Raises:
            UsageError: an optimizer has such a one, so who joins would make other updates.
        """
        found = {}
        for path in sorted(paths):
            holder, _, name = path.partition(":")
            values = self._holders[holder].values()
            if name in values:
                found[path] = values[name]
                continue
            value = self._holders[holder].found(name)
            if holder in self._of_optimizers and value is not None and not is_tool(name, value):
                raise unkept(path.replace(":", "."), value)
            if path not in self._left_out and value is not None:
                self._left_out.add(path)
                print(
                    f"elasticd: {path.replace(':', '.')} can no longer be stored (it has more than "
                    f"{MOST_LEAVES} entries, or other things than numbers, strings and arrays): a "
                    "replacement of this process goes on without it",
                    file=sys.stderr,
                )
        return found

    def _put(self, path: str, value: Any) -> None:
        self.thaws += 1
        holder, _, name = path.partition(":")
        if value is _ABSENT:
            self._holders[holder].drop(name)
        else:
            self._holders[holder].put(name, remembered(value))


def changed_values(
    before: Mapping[str, Any],
    arrays: Mapping[str, mx.array],
    now: Mapping[str, Any],
    new_arrays: Mapping[str, mx.array],
) -> tuple[Values, dict[str, mx.array]] | None:
    """Of values that were captured twice, those that are others ``now``, with their arrays; None if
    one is gone."""
    if before.keys() - now.keys():
        return None
    values: Values = {}
    tensors: dict[str, mx.array] = {}
    for path, value in now.items():
        own = {n: a for n, a in new_arrays.items() if n.startswith(_below(path))}
        same = path in before and before[path] == value
        if not same or not all(n in arrays and same_bits(arrays[n], a) for n, a in own.items()):
            values[path] = value
            tensors |= own
    return values, tensors


def _below(path: str) -> str:
    return f"{ATTRIBUTES}{path}/"


def _look(holders: Mapping[str, Holder]) -> Look:
    return {
        path: {name: remembered(value) for name, value in holder.values().items()}
        for path, holder in holders.items()
    }


def _of(look: Look, path: str) -> Any:
    holder, _, name = path.partition(":")
    return look.get(holder, {}).get(name, _ABSENT)


def _differing(before: Look, holders: Mapping[str, Holder]) -> set[str]:
    """What holders have otherwise than before, or no longer."""
    found = set()
    for path, old in before.items():
        new = holders[path].values()
        names = {n for n, value in new.items() if n not in old or not alike(old[n], value)}
        found |= {f"{path}:{name}" for name in names | (old.keys() - new.keys())}
    return found


def alike(one: Any, other: Any) -> bool:
    """Whether two plain values are the same, to the bit."""
    if one is other and not isinstance(one, (dict, list, tuple, np.ndarray, mx.array)):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, mx.array):
        mx.eval(one, other)
        return same_bits(one, other)
    if isinstance(one, (np.ndarray, np.generic)):
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and one.tobytes() == other.tobytes())
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    return same_float(one, other) if isinstance(one, float) else bool(one == other)


def remembered(value: Any) -> Any:
    """A copy that a change in place doesn't reach."""
    if isinstance(value, mx.array):
        return share(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: remembered(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return rebuilt(value, map(remembered, value))
    return value
