"""Computes activations again in the backward pass instead of keeping them.

Blocks are the modules in the model's lists of layers that have layers of their own. A block that
recomputes is of a class derived from its own, so its name, parameters and isinstance() stay. The
second pass draws the same random numbers as the first, and what it writes into the module (batch
statistics) is undone: the gradients keep their bits. Only where what goes into a block is used
outside of it, too (a skip connection), does MLX add up its gradient in another order.

Into a list, a dict or another object that it is given a block may write. A second pass would write
once more, and no gradient would come to what such an object holds. So a block recomputes only in
calls with arguments into which nothing can be written, and arrays: the first pass has the caller's
own, the second has others. What a block reads and writes besides, such as a list of its own, isn't
seen here.
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten, tree_map

from elasticd.train.states.trees import array_slots
from elasticd.train.steps import randomness

_PLAIN = "_elasticd_plain"
"""Of a class that recomputes: the one from which it was made."""


class Unwritten:
    """An object into which nothing is written, and to which no gradient comes: a block that is
    given one recomputes all the same."""


_UNWRITTEN = (type(None), bool, int, float, complex, str, bytes, mx.Dtype, enum.Enum, Unwritten)
_TOLD = set[type]()
"""Kinds of blocks of which it was said that they keep their activations."""


def switch_on(model: Module) -> int:
    """Let every block of ``model`` recompute, where that changes no bit; returns how many there
    are.

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
    plain = vars(kind).get(_PLAIN, kind)  # who loads a model may have switched it on already
    call: Callable[..., Any] = plain.__call__

    def recomputed(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin = _bookmark() if self.training else None
        if begin is None or _may_write(plain, args, kwargs):
            return call(self, *args, **kwargs)
        return _checkpointed(self, call, begin, [args, kwargs])

    names: dict[str, Any] = {_PLAIN: kind, "__call__": recomputed, "__slots__": ()}
    names |= {"__module__": kind.__module__}
    return type(kind.__name__, (kind,), {**names, "__qualname__": kind.__qualname__})


def _bookmark() -> Callable[[], None] | None:
    """None where nobody can know where generators stand, as ``mx.compile`` traces."""
    try:
        return randomness.bookmark()
    except ValueError:
        return None


def _may_write(kind: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a block of that kind may write into what it is given. The first time it is said."""
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for place, value in given:
        if wrong := _writable(value):
            if kind not in _TOLD:
                _TOLD.add(kind)
                print(
                    f"elasticd: {kind.__name__} keeps its activations, also where memory is short:"
                    f" its argument {_name(kind, place)} {wrong}, into which it may write. Layers"
                    " whose arguments are arrays, numbers, texts and tuples of these can compute"
                    " theirs again",
                    file=sys.stderr,
                )
            return True
    return False


def _writable(value: Any) -> str:
    """What of an argument may be written to: the predicate of a sentence; empty: nothing."""
    if type(value) is tuple:
        inner = next(filter(None, map(_writable, value)), "")
        return inner and inner.replace("is of", "holds one of", 1)
    safe = isinstance(value, (mx.array, *_UNWRITTEN))
    return "" if safe else f"is of type {type(value).__name__}"


def _name(kind: type, place: int | str) -> str:
    """Of an argument, by the signature if that tells."""
    if isinstance(place, str):
        return place
    names = [*inspect.signature(kind.__call__).parameters][1:]
    return names[place] if place < len(names) else f"{place + 1}"


def _checkpointed(
    module: Any, call: Callable[..., Any], begin: Callable[[], None], given: list[Any]
) -> Any:
    """``begin`` has generators stand where they do before the first pass. ``given``: the arguments,
    and those with names."""
    arrays = _arrays(given)
    places = {at: object() for at in arrays}
    pattern, order = _with(given, places), [*places.values()]
    # Until the backward pass `run` keeps no array of `given`: one into which the block has written
    # leads back to `run`, and both would stay for good.
    first, results = [given], list[Any]()

    def run(parameters: Any, values: list[mx.array]) -> list[mx.array]:
        if first:
            args, kwargs = first.pop()
            results.append(call(module, *args, **kwargs))
            return _outputs(results[0])
        args, kwargs = _with(pattern, dict(zip(map(id, order), values, strict=True)))
        slots = list(array_slots(module.state).values())
        before = [slot.value for slot in slots]
        module.update(parameters)
        try:
            with randomness.undisturbed():
                begin()
                return _outputs(call(module, *args, **kwargs))
        finally:
            for slot, value in zip(slots, before, strict=True):
                slot.put(value)

    outputs = mx.checkpoint(run)(module.trainable_parameters(), [*arrays.values()])
    result = results.pop()
    made = dict(zip(_arrays(result), outputs, strict=False))
    for at in made.keys() & arrays.keys():  # it returns the caller's own, and may have written
        arrays[at][...] = made[at]
        made[at] = arrays[at]
    return _with(result, made)


def _outputs(result: Any) -> list[mx.array]:
    """Of a block; one at least, as MLX crashes without."""
    return [*_arrays(result).values()] or [mx.zeros(())]


def _arrays(tree: Any) -> dict[int, mx.array]:
    """Each array once, by its id."""
    found: Any = tree_flatten(tree, is_leaf=_is_leaf)
    return {id(leaf): leaf for _, leaf in found if isinstance(leaf, mx.array)}


def _with(tree: Any, others: Mapping[int, Any]) -> Any:
    """``tree`` with ``others`` in place of its leaves, by their ids."""
    return tree_map(lambda leaf: others.get(id(leaf), leaf), tree, is_leaf=_is_leaf)


def _is_leaf(value: Any) -> bool:
    return type(value) not in (tuple, list, dict) and not hasattr(value, "_fields")
