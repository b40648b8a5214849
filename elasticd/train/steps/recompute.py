"""Computes activations again in the backward pass instead of keeping them.

Blocks are the modules in the model's lists of layers that have layers of their own. A block that
recomputes is of a class derived from its own, so its name, parameters and isinstance() stay. The
second pass draws the same random numbers as the first, and what it writes into the module (batch
statistics) is undone: the gradients keep their bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from elasticd.train.states.trees import array_slots
from elasticd.train.steps import randomness

_PLAIN = "_elasticd_plain"
"""Of a class that recomputes: the one from which it was made."""


def switch_on(model: Module) -> int:
    """Let every block of ``model`` recompute; returns how many there are.

    It has no effect inside of what ``mx.compile`` traces: there MLX can't draw the same random
    numbers again.
    """
    blocks = list(_blocks(model))
    for block in blocks:
        object.__setattr__(block, "__class__", _recomputing(type(block)))
    return len(blocks)


def switch_off(model: Module) -> int:
    """Let them keep their activations again; returns how many there are."""
    found = [(each, vars(type(each)).get(_PLAIN)) for each in _blocks(model)]
    blocks = [(each, plain) for each, plain in found if plain is not None]
    for block, plain in blocks:
        object.__setattr__(block, "__class__", plain)
    return len(blocks)


def _blocks(tree: Any, in_list: bool = False) -> Iterator[Module]:
    """The outermost modules that lie in lists and have modules below them."""
    if isinstance(tree, Module):
        if in_list and any(_holds_module(value) for value in tree.values()):
            yield tree
            return
        in_list = False
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _blocks(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _blocks(value, in_list=True)


def _holds_module(value: Any) -> bool:
    if isinstance(value, Module):
        return True
    if isinstance(value, dict):
        return any(_holds_module(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_module(item) for item in value)


@cache
def _recomputing(kind: type) -> type:
    call: Callable[..., Any] = kind.__call__

    def recomputed(self: Any, *args: Any, **kwargs: Any) -> Any:
        key = _key() if self.training else None
        if key is None:
            return call(self, *args, **kwargs)
        return _checkpointed(self, call, key, args, kwargs)

    names: dict[str, Any] = {_PLAIN: kind, "__call__": recomputed, "__slots__": ()}
    names |= {"__module__": kind.__module__}
    return type(kind.__name__, (kind,), {**names, "__qualname__": kind.__qualname__})


def _key() -> list[int] | None:
    """Where the generator stands; None where nobody can know, as ``mx.compile`` traces."""
    try:
        return randomness.mlx_key()
    except ValueError:
        return None


def _checkpointed(
    module: Any,
    call: Callable[..., Any],
    key: list[int],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    passes = 0

    def run(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal passes
        passes += 1
        if passes == 1:
            module.update(parameters)
            return call(module, *args, **kwargs)
        places = list(array_slots(module.state).values())
        values, after = [place.value for place in places], randomness.mlx_key()
        randomness.set_mlx_key(key)
        module.update(parameters)
        try:
            return call(module, *args, **kwargs)
        finally:
            randomness.set_mlx_key(after)
            for place, value in zip(places, values, strict=True):
                place.put(value)

    return mx.checkpoint(run)(module.trainable_parameters(), *args, **kwargs)
