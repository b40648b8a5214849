"""The dicts and lists of an optimizer's state: what is in them, and which leaves come and go.

An optimizer may make some of its state in its first update only. So a state that is put back, or
that comes from elsewhere, may have other leaves than the one in place.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from elasticd.errors import MismatchError
from elasticd.train.states.trees import Slot, slots

_SMALL_BYTES = 4096


@dataclass(frozen=True)
class _Zeros:
    """An array of zeros, without its memory."""

    shape: tuple[int, ...]
    dtype: mx.Dtype


def remember(tree: Any, *, long: bool = False) -> Callable[[], None]:
    """Remember what a tree's containers hold, by reference; the result puts it back. What is to be
    remembered for ``long`` takes little memory where it is zeros, as it is in the beginning."""
    held = [(node, _items(node, long)) for node in _containers(tree)]

    def put_back() -> None:
        for node, items in held:
            made = [(key, _made(value)) for key, value in items]
            if isinstance(node, dict):
                node.clear()
                node.update(made)
            else:
                node[:] = [value for _, value in made]

    return put_back


def put_state(optimizer: optim.Optimizer, saved: Any) -> None:
    """Give an optimizer a state whole, in the dicts and lists that it has: a compiled function of
    the script's may hold them.

    Raises:
        MismatchError: it joins more or fewer optimizers than the state is of; nothing was changed.
    """
    _check_parts(optimizer, saved)
    optimizer.state = _refilled(optimizer.state, saved)


def _check_parts(optimizer: optim.Optimizer, saved: Any) -> None:
    if not isinstance(optimizer, optim.MultiOptimizer):
        return
    parts, states = optimizer.optimizers, saved.get("states") if isinstance(saved, dict) else None
    if not isinstance(states, list) or len(states) != len(parts):
        there = "another optimizer" if states is None else f"a MultiOptimizer of {len(states)}"
        raise MismatchError(
            f"a MultiOptimizer of {len(parts)} is here, and the state is that of {there}"
        )
    for part, state in zip(parts, states, strict=True):
        _check_parts(part, state)


def _refilled(node: Any, saved: Any) -> Any:
    """``saved`` in the place of ``node``, and in its containers as far as they are alike."""
    if isinstance(node, dict) and isinstance(saved, dict):
        items = {key: _refilled(node.get(key), value) for key, value in saved.items()}
        node.clear()
        node.update(items)
        return node
    if isinstance(node, list) and isinstance(saved, list):
        longer = [*node, *[None] * len(saved)]
        node[:] = [_refilled(*pair) for pair in zip(longer, saved, strict=False)]
        return node
    return saved


def _containers(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (dict, list)):
        yield tree
    if isinstance(tree, (dict, list, tuple)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _containers(item)


def _items(node: Any, long: bool) -> list[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    return [(key, _spared(value) if long else value) for key, value in items]


def _spared(value: Any) -> Any:
    if not isinstance(value, mx.array) or value.nbytes <= _SMALL_BYTES:
        return value
    zeros = not mx.any(value != 0).item()
    return _Zeros(tuple(value.shape), value.dtype) if zeros else value


def _made(value: Any) -> Any:
    return mx.zeros(value.shape, value.dtype) if isinstance(value, _Zeros) else value


@dataclass(frozen=True)
class Beginning:
    """An optimizer's state as it was when the run came to know of it."""

    leaves: frozenset[str]
    put_back: Callable[[], None]
    """For a run that has states without the optimizer: in them it had not begun."""

    @classmethod
    def of(cls, optimizer: optim.Optimizer, places: Iterable[str], late: bool) -> Beginning:
        tree = optimizer.state if late else []
        return cls(frozenset(places), remember(tree, long=True))


def makes_leaves(optimizer: optim.Optimizer) -> bool:
    """Whether it may make some of its state in an update: those of MLX make all of it before."""
    parts = optimizer.optimizers if isinstance(optimizer, optim.MultiOptimizer) else [optimizer]
    return any(not type(part).__module__.startswith("mlx.") for part in parts)


class Shape:
    """Which dicts, lists and tuples of an optimizer's state every process makes by itself: those
    that lead to its parameters, and those that were there for one of them when it began with that.
    What is in them are leaves of the state. Any other is one leaf with all that is in it, and so is
    a tuple that was empty, as it can only be replaced."""

    def __init__(self, optimizer: optim.Optimizer, parameters: Iterable[str]) -> None:
        self._optimizer, self._parameters = optimizer, frozenset(parameters)
        ends = {path[:end] for path in self._parameters for end, c in enumerate(path) if c == "."}
        self._ways = self._parameters | ends | {""}
        self._kinds: dict[tuple[bool, str], type] = {}
        self._note()

    def made(self, parameters: Container[str]) -> None:
        """The optimizer has just made what it begins with for these, too."""
        self._note(lambda path: self.of(path) in parameters)

    def _note(self, wanted: Callable[[str], bool] = lambda path: True) -> None:
        def note(path: str, value: Any) -> bool:
            if value != () and wanted(path):
                self._kinds.setdefault(self._place(path), type(value))
            return True

        slots(self._optimizer.state, note)

    def _opens(self, path: str, value: Any) -> bool:
        return self._inner(path) in self._ways or self._kinds.get(self._place(path)) is type(value)

    def of(self, path: str) -> str:
        """The parameter that a place in the state belongs to; empty if to none."""
        path = self._inner(path)
        while path and path not in self._parameters:
            path = path.rpartition(".")[0]
        return path

    def _place(self, path: str) -> tuple[bool, str]:
        """Whether it belongs to a parameter, and where in what is kept of each."""
        of = self.of(path)
        return bool(of), self._inner(path).removeprefix(of)

    def _inner(self, path: str) -> str:
        """A path in the state of the one optimizer that it leads to; empty if to none."""
        optimizer: Any = self._optimizer
        while isinstance(optimizer, optim.MultiOptimizer):
            number, _, path = path.partition(".")[2].partition(".")
            if not path:
                return ""
            optimizer = optimizer.optimizers[int(number)]
        return path

    def leaves(self, tree: Any) -> dict[str, Slot]:
        """The places of a state's leaves, by path."""
        return slots(tree, self._opens)

    def stays(self, path: str) -> bool:
        """Whether a leaf of the beginning is one of all states: a list may become shorter."""
        return self._kinds.get(self._place(path.rpartition(".")[0])) is not list


def fit(
    tree: Any, shape: Shape, first: Iterable[str], saved: Iterable[str]
) -> dict[str, Slot] | None:
    """Give ``tree`` those leaves that a saved state has, and return their places. Only those of
    lists, and what was not there at ``first``, come or go; None, and nothing has changed, if that
    isn't enough."""
    wanted, places = set(saved), shape.leaves(tree)
    if any(path not in wanted and shape.stays(path) for path in first):
        return None
    put_back = remember(tree)
    # From the end on: those of a list move up.
    for path in reversed([path for path in places if path not in wanted]):
        drop(places[path])
    for path in sorted(wanted - places.keys(), key=_in_order):
        _add(tree, path)
    places = shape.leaves(tree)
    if places.keys() == wanted:
        return places
    put_back()
    return None


def _in_order(path: str) -> list[tuple[int, str]]:
    """Numbers by their size, which is that of their digits before all else."""
    return [(len(part), part) for part in path.split(".")]


def drop(slot: Slot) -> None:
    """Take a leaf away, unless it is one of a tuple's."""
    if isinstance(slot.container, (dict, list)):
        del slot.container[slot.key]


def _add(tree: Any, path: str) -> None:
    """Make the place of a leaf that isn't there yet, in a dict or at the end of a list."""
    *way, last = path.split(".")
    for part in way:
        if isinstance(tree, dict) and part in tree:
            tree = tree[part]
        elif isinstance(tree, (list, tuple)) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return
    if isinstance(tree, dict):
        tree.setdefault(last)
    elif isinstance(tree, list) and last == str(len(tree)):
        tree.append(None)
