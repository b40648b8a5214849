"""Private dicts of a model in which forward passes keep arrays, by length say.

Each pass begins with what is in them between the steps, so that no pass depends on those that its
process has made before. What a pass puts there is its own, and goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module

from elasticd.train.states.lazy import is_private
from elasticd.train.states.trees import arrays


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
