"""Arrays in nested dicts, lists and modules, by dotted path; and plain data as JSON and tensors."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from elasticd.errors import MismatchError, UsageError


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one value of a tree."""

    container: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.container[self.key]

    def put(self, value: Any) -> None:
        self.container[self.key] = value


def slots(tree: Any) -> dict[str, Slot]:
    """The places of a tree's leaves, by path (those of ``mlx.utils.tree_flatten``).

    Modules are dicts; their leaves whose names begin with an underscore are found too.
    """
    found: dict[str, Slot] = {}
    _find(tree, "", found)
    return found


def _find(tree: Any, prefix: str, found: dict[str, Slot]) -> None:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, (dict, list, tuple)):
            _find(value, f"{prefix}{key}.", found)
        else:
            found[f"{prefix}{key}"] = Slot(tree, key)


def arrays(tree: Any) -> dict[str, mx.array]:
    """The arrays of a tree, by path."""
    return {path: s.value for path, s in slots(tree).items() if isinstance(s.value, mx.array)}


def array_slots(tree: Any) -> dict[str, Slot]:
    """The places of a tree's arrays, by path."""
    return {path: s for path, s in slots(tree).items() if isinstance(s.value, mx.array)}


def dtype_name(array: mx.array) -> str:
    """``float32`` and so on."""
    return str(array.dtype).rpartition(".")[2]


def describe(array: mx.array) -> str:
    """``float32[3,4]``."""
    return f"{dtype_name(array)}[{','.join(map(str, array.shape))}]"


def check_alike(what: str, mine: Mapping[str, mx.array], theirs: Mapping[str, mx.array]) -> None:
    """Compare names, dtypes and shapes.

    Raises:
        MismatchError: naming the first difference.
    """
    for path in sorted({*mine, *theirs}):
        here = describe(mine[path]) if path in mine else "absent"
        there = describe(theirs[path]) if path in theirs else "absent"
        if here != there:
            raise MismatchError(f"{what} {path!r} is {here} here and {there} in the state")


def same_bits(one: mx.array, other: mx.array) -> bool:
    """Whether two evaluated arrays hold the same bits in the same shape and dtype."""
    if one is other:
        return True
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.size == 0 or _address(one) == _address(other) is not None:
        return True
    return bool(mx.array_equal(_bytes(one), _bytes(other)))


def changed(
    before: Mapping[str, mx.array], now: Mapping[str, mx.array]
) -> dict[str, mx.array] | None:
    """The evaluated arrays of ``now`` that don't lie where they lay ``before``, in handles of their
    own; None if there are others than before. What was replaced by the same bits is named too."""
    if before.keys() != now.keys():
        return None
    return {name: share(a) for name, a in now.items() if not same_place(before[name], a)}


def same_place(one: mx.array, other: mx.array) -> bool:
    """Whether two evaluated arrays are one: what was assigned anew lies elsewhere than what was
    there, even if it has the same bits, as long as somebody holds that."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.size == 0 or _address(one) == _address(other) is not None


def _address(array: mx.array) -> int | None:
    view = memoryview(array)  # type: ignore[arg-type]
    return ctypes.addressof(_BYTE.from_buffer(view)) if view.c_contiguous else None


_BYTE = ctypes.c_char


def _bytes(array: mx.array) -> mx.array:
    return mx.contiguous(array).reshape(-1).view(mx.uint8)


def share(array: mx.array) -> mx.array:
    """Another handle on the same array: what is written in place through the one isn't seen through
    the other. It costs no memory, and the array need not be evaluated."""
    return copy.copy(array)


def take_apart(value: Any, path: str, tensors: dict[str, mx.array]) -> Any:
    """``value`` as JSON; its arrays are put into ``tensors`` by names that begin with ``path``.

    Raises:
        UsageError: naming the part that is neither plain data nor an array.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        pairs = [
            [_plain_key(key, path), take_apart(item, _join(path, key), tensors)]
            for key, item in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [take_apart(item, _join(path, i), tensors) for i, item in enumerate(value)]}
    while path in tensors:  # {"a.b": …} beside {"a": {"b": …}}
        path += "'"
    if isinstance(value, mx.array):
        tensors[path] = share(value)
        return {"array": path}
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        data = np.ascontiguousarray(value)
        tensors[path] = mx.array(np.frombuffer(data.tobytes(), np.uint8))
        kind = "numpy" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [path, value.dtype.str, list(value.shape)]}
    raise UsageError(f"{path} is a {type(value).__name__}, which can't be stored")


def _join(path: str, key: Any) -> str:
    return f"{path}{key}" if path.endswith("/") else f"{path}.{key}"


def _plain_key(key: Any, path: str) -> Any:
    if key is None or isinstance(key, (bool, int, float, str)):
        return key
    raise UsageError(f"{path} has a key of type {type(key).__name__}, which can't be stored")


def named_in(plain: Any) -> Iterator[str]:
    """The names of the arrays of what :func:`take_apart` made."""
    if not isinstance(plain, dict):
        return
    kind, content = next(iter(plain.items()))
    match kind:
        case "array":
            yield content
        case "numpy" | "scalar":
            yield content[0]
        case "dict":
            for _, item in content:
                yield from named_in(item)
        case _:
            for item in content:
                yield from named_in(item)


def put_together(plain: Any, tensors: Mapping[str, mx.array]) -> Any:
    """The inverse of :func:`take_apart`."""
    if not isinstance(plain, dict):
        return plain
    kind, content = next(iter(plain.items()))
    match kind:
        case "dict":
            return {key: put_together(item, tensors) for key, item in content}
        case "list":
            return [put_together(item, tensors) for item in content]
        case "tuple":
            return tuple(put_together(item, tensors) for item in content)
        case "array":
            return share(tensors[content])
        case "numpy" | "scalar":
            path, dtype, shape = content
            data = np.frombuffer(np.array(tensors[path]).tobytes(), np.dtype(dtype)).reshape(shape)
            return data.copy() if kind == "numpy" else data[()]
        case _:
            raise MismatchError(f"the state holds an unknown kind of value: {kind!r}")


def walk(tree: Any) -> Iterator[mx.array]:
    """The arrays of a tree that may hold anything else too, tuples included."""
    if isinstance(tree, mx.array):
        yield tree
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from walk(item)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from walk(item)
