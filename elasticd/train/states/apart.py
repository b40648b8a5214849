"""Arrays, lists and dicts that lie in several places of the state become one for each place.

``run.state.last = model.centers`` gives one array two names. MLX writes in place into what a name
stands for (``x[0] = 1``, ``x += 1``), so both change. But a state that was stored or sent has two
arrays there, of which one would change. So they are two wherever a body of the loop has ended, in
every process. What the script's own variables stand for stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx.nn.layers.base import Module

from elasticd.train.states.trees import DEEPEST, rebuilt, share

_PLAIN = (float, int, str, bool, type(None))


class LiveTree:
    """Of ours, what holds things that a script has given, and may go on to change."""

    def _live(self) -> Any:
        """These, in a dict or list."""
        raise NotImplementedError


def set_apart(things: Iterable[Any]) -> None:
    """What is in several places of ``things`` is copied in all but one: modules and optimizers come
    first. Where these have a container in several places it stays, since every process makes them
    alike. What is in other objects isn't looked at."""
    held = list(things)
    seen: dict[int, Any] = {}  # held, so that no other object gets its id meanwhile
    for tree in _made(held):
        _look(tree, seen, 0, copies=False)
    for tree in _kept(held):
        _look(tree, seen, 0, copies=True)


def _made(things: Iterable[Any]) -> Iterator[Any]:
    for thing in things:
        if isinstance(thing, Module):
            yield thing
        elif isinstance(thing, optim.Optimizer):
            yield thing.state


def _kept(things: Iterable[Any]) -> Iterator[Any]:
    for thing in things:
        if isinstance(thing, LiveTree):
            yield thing._live()
        elif isinstance(thing, (dict, list)) and not isinstance(thing, Module):
            yield thing


def _look(value: Any, seen: dict[int, Any], depth: int, *, copies: bool) -> Any:
    """What is to be in the place of ``value``. ``copies``: it may be a copy of a container."""
    if isinstance(value, (mx.array, np.ndarray)):
        root = _root(value)
        if id(root) in seen:
            return _copy(value)
        seen[id(root)] = root
    elif isinstance(value, tuple):
        items = [_look(item, seen, depth + 1, copies=copies) for item in value]
        if any(item is not before for item, before in zip(items, value, strict=True)):
            return rebuilt(value, items)
    elif isinstance(value, (dict, list)) and depth <= DEEPEST:
        if id(value) in seen:
            return _copy(value) if copies else value
        seen[id(value)] = value
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            kind = type(item)
            if kind in _PLAIN:
                continue
            if kind is mx.array and id(item) not in seen:  # nearly all are, in each step
                seen[id(item)] = item
                continue
            now = _look(item, seen, depth + 1, copies=copies)
            if now is not item:
                value[key] = now
    return value


def _root(array: Any) -> Any:
    """What holds an array's numbers: several of NumPy's may show parts of one."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def _copy(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """Nothing in it is in another place. What is ``within`` itself is left to who refuses it."""
    kind = type(value)
    if isinstance(value, mx.array):
        return share(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if any(value is outer for outer in within):
        return value
    if kind is dict:
        return {key: _copy(item, (*within, value)) for key, item in value.items()}
    if kind is list or isinstance(value, tuple):
        return rebuilt(value, [_copy(item, (*within, value)) for item in value])
    return value
