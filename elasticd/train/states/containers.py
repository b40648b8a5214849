"""The dicts and lists of an optimizer's state: what is in them, and which leaves come and go.

An optimizer may make some of its state in its first update only. So a state that is put back, or
that comes from elsewhere, may have other leaves than the one in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim

from elasticd.errors import MismatchError
from elasticd.train.states.trees import Slot

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


def fit(tree: Any, places: Mapping[str, Slot], first: Iterable[str], saved: Iterable[str]) -> bool:
    """Give ``tree``, whose leaves are ``places``, those leaves that a saved state has. Only leaves
    that were not there at ``first`` come or go; whether that was enough."""
    wanted, known = set(saved), set(first)
    if known - wanted:
        return False
    missing = {path: _parent(tree, path) for path in wanted - places.keys()}
    if any(slot is None for slot in missing.values()):
        return False
    for path in places.keys() - wanted:
        del places[path].container[places[path].key]
    for slot in missing.values():
        assert slot is not None
        slot.put(None)
    return True


def _parent(tree: Any, path: str) -> Slot | None:
    """The place of a leaf that isn't there yet, in a dict that is."""
    *way, last = path.split(".")
    for part in way:
        if isinstance(tree, dict) and part in tree:
            tree = tree[part]
        elif isinstance(tree, (list, tuple)) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return None
    return Slot(tree, last) if isinstance(tree, dict) and last not in tree else None
