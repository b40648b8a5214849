"""Private dicts of a model in which forward passes keep arrays, by length say.

Each pass begins with what is in them between the steps, so that no pass depends on those that its
process has made before. What a pass puts there is its own, and goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module

from elasticd.errors import UsageError
from elasticd.train.states.lazy import is_private
from elasticd.train.states.trees import arrays, same_bits


class PassEntry(NamedTuple):
    """What a pass has put into a dict."""

    cache: str
    """The dict's path."""
    into: dict[Any, Any]
    key: Any
    value: Any


class PassCaches:
    """Of one model, in this process."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self._before: list[tuple[str, dict[Any, Any], frozenset[Any]]] = []

    def step_begins(self) -> None:
        """What is in the dicts now, each pass finds."""
        self._before = [(path, d, frozenset(d)) for path, d in _private_dicts(self._model, "")]

    def made(self) -> list[PassEntry]:
        """What a pass has put there since, if there are arrays among it. What has none goes with
        them: it may say that they are there (``self._known[length] = True``)."""
        added = [
            PassEntry(path, cache, key, value)
            for path, cache, before in self._before
            for key, value in cache.items()
            if key not in before and not isinstance(value, Module)
        ]
        return added if arrays_of(added) else []

    def clear(self) -> None:
        """Take it away."""
        for entry in self.made():
            del entry.into[entry.key]


class KnownEntries:
    """What is in private dicts has to be the same under one key in all passes of this process: as
    the first of them that made it has left it. (A plain loop would hold that, too.)"""

    def __init__(self, same: Callable[[mx.array, mx.array], bool] = same_bits) -> None:
        self._same = same
        self._known: dict[str, mx.array] = {}

    def has(self, entries: Collection[str]) -> bool:
        """Whether all of these are known."""
        return self._known.keys() >= set(entries)

    def add(self, entries: Mapping[str, mx.array]) -> None:
        """Those that are known stay."""
        new = {path: array for path, array in entries.items() if path not in self._known}
        mx.eval(new)
        self._known |= new

    def check(self, entries: Mapping[str, mx.array]) -> None:
        """Compare those that are known; they are evaluated.

        Raises:
            UsageError: naming the first that isn't the same.
        """
        known = {path: array for path, array in entries.items() if path in self._known}
        mx.eval(known)
        for path, array in sorted(known.items()):
            if not self._same(array, self._known[path]):
                raise UsageError(
                    f"a forward pass put {path} into a private dict, and another pass something "
                    "else under that key: what comes of samples or of parameters is no cache. Make "
                    "it in __init__ with its shape, and let every pass assign it; if it is for one "
                    "pass alone return it"
                )


def nearly_same(one: mx.array, other: mx.array) -> bool:
    """Whether one formula may have led to both: two traces may round it in two ways."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not mx.issubdtype(one.dtype, mx.floating):
        return same_bits(one, other)
    share = 1e-3 if one.dtype == mx.float32 else 1e-2
    return bool(mx.allclose(one, other, rtol=share, atol=share, equal_nan=True))


def put_back(entries: list[PassEntry]) -> None:
    """A pass is to find what another has made."""
    for entry in entries:
        entry.into[entry.key] = entry.value


def arrays_of(entries: list[PassEntry]) -> dict[str, mx.array]:
    """By path."""
    return {
        f"{entry.cache}.{entry.key}{path.removeprefix('0')}": array
        for entry in entries
        for path, array in arrays([entry.value]).items()
    }


def _private_dicts(tree: Any, prefix: str) -> Iterator[tuple[str, dict[Any, Any]]]:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        path = f"{prefix}{key}"
        if type(value) is dict and is_private(path):
            yield path, value
        if isinstance(value, (dict, list, tuple)):
            yield from _private_dicts(value, f"{path}.")
