"""Arrays in nested dicts, lists and modules, by dotted path; and plain data as JSON and tensors."""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import datetime
import enum
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, NoReturn

import mlx.core as mx
import numpy as np
from mlx.nn.layers.base import Module

from elasticd.errors import MismatchError, UsageError

Generators = (random.Random, np.random.Generator)
"""What ``run.state`` takes besides, by a name of its own."""


@dataclasses.dataclass(slots=True)
class Slot:
    """The place of one value of a tree. (Frozen it would take three times as long to make, and a
    step makes one for each array.)"""

    container: Any
    key: Any

    @property
    def value(self) -> Any:
        return self.container[self.key]

    def put(self, value: Any) -> None:
        self.container[self.key] = value


class _InPlace:
    """A list, tuple or dict in its place: a pass of a model may put another one there.

    Raises:
        LookupError: something else is there by now.
    """

    def __init__(self, place: Slot, first: Any) -> None:
        """``first`` is there now."""
        self._place = place
        self._kind = next(kind for kind in (dict, list, tuple) if isinstance(first, kind))

    def _there(self) -> Any:
        found = self._place.value
        if isinstance(found, self._kind):
            return found
        raise LookupError(f"there is no {self._kind.__name__} any more")

    def __getitem__(self, key: Any) -> Any:
        return self._there()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        before = self._there()
        if isinstance(before, tuple):
            self._place.put(rebuilt(before, (*before[:key], value, *before[key + 1 :])))
        else:
            before[key] = value


def rebuilt(tree: Any, items: Iterable[Any]) -> Any:
    """A list, tuple or named tuple like ``tree`` of other items."""
    return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def slots(tree: Any, opens: Callable[[str, Any], bool] | None = None) -> dict[str, Slot]:
    """The places of a tree's leaves, by path (those of ``mlx.utils.tree_flatten``). A dict, list or
    tuple that ``opens`` says no to, by path and value, is a leaf.

    Modules are dicts; their leaves whose names begin with an underscore are found too.
    """
    found: dict[str, Slot] = {}
    _find(tree, tree, "", found, object, opens)
    return found


def _find(
    tree: Any,
    container: Any,
    prefix: str,
    found: dict[str, Slot],
    kind: type,
    opens: Callable[[str, Any], bool] | None = None,
) -> None:
    """``container`` is what the leaves of ``tree`` are put into."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        is_container = isinstance(value, (dict, list, tuple))
        if is_container and (opens is None or opens(f"{prefix}{key}", value)):
            may_go = _may_go(value, tree, container)
            inner = _InPlace(Slot(container, key), value) if may_go else value
            _find(value, inner, f"{prefix}{key}.", found, kind, opens)
        elif isinstance(value, kind):
            found[f"{prefix}{key}"] = Slot(container, key)


def _may_go(value: Any, holder: Any, container: Any) -> bool:
    """Whether ``holder`` may have another one in the place of ``value`` when it is looked at again:
    a tuple can't be written, and a module may assign what it has that is no module."""
    if isinstance(value, tuple):
        return True
    within = isinstance(holder, Module) or isinstance(container, _InPlace)
    return within and not isinstance(value, Module)


def arrays(tree: Any) -> dict[str, mx.array]:
    """The arrays of a tree, by path."""
    return {path: slot.value for path, slot in array_slots(tree).items()}


def array_slots(tree: Any) -> dict[str, Slot]:
    """The places of a tree's arrays, by path."""
    found: dict[str, Slot] = {}
    _find(tree, tree, "", found, mx.array)
    return found


def dtype_name(array: mx.array) -> str:
    """``float32`` and so on."""
    return str(array.dtype).rpartition(".")[2]


def describe(array: mx.array) -> str:
    """``float32[3,4]``."""
    return f"{dtype_name(array)}[{','.join(map(str, array.shape))}]"


def check_alike(
    what: str, mine: Mapping[str, mx.array], theirs: Mapping[str, mx.array], kinds: bool = True
) -> None:
    """Compare names, and the dtypes and shapes if ``kinds`` are to be the same: those of an
    optimizer's arrays may change with what it is given.

    Raises:
        MismatchError: naming the first difference.
    """
    for path in sorted({*mine, *theirs}):
        here = describe(mine[path]) if path in mine else "absent"
        there = describe(theirs[path]) if path in theirs else "absent"
        if here != there and (kinds or "absent" in (here, there)):
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


def same_float(one: float, other: float) -> bool:
    """The sign of zero counts, and NaN is NaN."""
    same = one == other and math.copysign(1, one) == math.copysign(1, other)
    return same or (one != one and other != other)


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


def take_apart(value: Any, path: str, tensors: dict[str, mx.array], depth: int = 0) -> Any:
    """``value`` as JSON; its arrays are put into ``tensors`` by names that begin with ``path``.

    Only what :func:`put_together` gives back as it was, its types included.

    Raises:
        UsageError: naming the part that can't be given back so, and what to do.
    """
    kind = type(value)
    if kind in _SCALARS:
        return _checked(value, path, "")
    if depth > DEEPEST:
        _refuse(path, f"is nested deeper than {DEEPEST}", "make it flat")
    if kind is dict:
        pairs = [
            [_plain_key(key, path), take_apart(item, _join(path, key), tensors, depth + 1)]
            for key, item in value.items()
        ]
        return {"dict": pairs}
    if kind is list or kind is tuple:
        items = [take_apart(v, _join(path, i), tensors, depth + 1) for i, v in enumerate(value)]
        return {kind.__name__: items}
    name = path
    while name in tensors:  # {"a.b": …} beside {"a": {"b": …}}
        name += "'"
    if kind is mx.array:
        tensors[name] = share(value)
        return {"array": name}
    if is_numeric(value):
        data = np.ascontiguousarray(value)
        tensors[name] = mx.array(np.frombuffer(data.tobytes(), np.uint8))
        of = "numpy" if kind is np.ndarray else "scalar"
        return {of: [name, value.dtype.str, list(value.shape)]}
    return _refuse(path, f"is {named(value)}, which can't be stored", cure(value))


DEEPEST = 100
"""Containers in each other."""
MOST_BITS = 10_000
"""Of an integer: Python writes none that is much longer."""
_SCALARS = (type(None), bool, int, float, str)


def is_real(value: object) -> bool:
    """Whether it is one number, of Python's or NumPy's."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_numeric(value: Any) -> bool:
    """Whether it is an array or a scalar of NumPy that its bytes, its shape and the name of its
    dtype tell all about, on every machine."""
    if type(value) is not np.ndarray and not isinstance(value, np.generic):
        return False
    kind, width = value.dtype.kind, value.dtype.itemsize
    if kind in "US":  # of a scalar NumPy drops zeros at its end
        return type(value) is np.ndarray and width > 0
    return kind in "biumM" or (kind == "f" and width <= 8) or (kind == "c" and width <= 16)


def named(value: Any) -> str:
    """``a Counter``; of an array of NumPy with its dtype."""
    word = type(value).__name__
    if isinstance(value, (np.ndarray, np.generic)) and not is_numeric(value):
        word += f" of dtype {value.dtype}"
    return f"a{'n' if word.startswith((*'AEIOUaeiou', 'nd')) else ''} {word}"


def cure(value: Any) -> str:
    """What to keep in place of a value that can't be stored."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.names:
        return "keep each of its fields as an array, in a dict"
    if isinstance(value, np.ndarray):
        return "turn it into a plain array of numbers with np.array(…)"
    if type(value) in Generators:
        return "assign it to a name of run.state itself"
    if isinstance(value, Generators):
        return "take random.Random(…) or np.random.default_rng(…)"
    for kind in (dict, tuple, list, bool, int, float, str):
        if isinstance(value, kind):
            return f"turn it into {'an' if kind is int else 'a'} {kind.__name__}"
    if isinstance(value, (set, frozenset)):
        return "turn it into a sorted list"
    if isinstance(value, (bytes, bytearray)):
        return "turn it into an array with np.frombuffer(…, np.uint8)"
    if isinstance(value, complex):
        return "turn it into a np.complex128"
    if isinstance(value, enum.Enum):
        return "keep its value"
    if isinstance(value, (datetime.date, datetime.time, os.PathLike)):
        return "turn it into a str"
    if dataclasses.is_dataclass(value):
        return "turn it into a dict with dataclasses.asdict(…)"
    return "keep numbers, strings, arrays, or lists, tuples and dicts of them instead"


def _refuse(path: str, what: str, how: str) -> NoReturn:
    raise UsageError(f"{_spoken(path)} {what}: {how}")


def _spoken(path: str) -> str:
    """As the script calls it."""
    sort, _, rest = path.partition("/")
    if sort == "user":
        name, _, below = rest.partition("/")
        below = below.rstrip("/")
        if name == "elasticd.state":
            return f"run.state.{below.removeprefix('values.')}"
        return f"run.track({name!r}): {below or 'it'}"
    if sort == "attributes":
        return rest.replace(":", ".", 1).replace("/", ".").rstrip(".")
    return path.replace("/", ".").rstrip(".")


def _join(path: str, key: Any) -> str:
    return f"{path}{key}" if path.endswith("/") else f"{path}.{key}"


def _plain_key(key: Any, path: str) -> Any:
    if type(key) in _SCALARS:
        return _checked(key, path, "has a key that ")
    how = cure(key) if isinstance(key, (str, int, float)) else "use strings or numbers"
    return _refuse(path, f"has a key of type {type(key).__name__}, which can't be stored", how)


def _checked(value: Any, path: str, of: str) -> Any:
    if type(value) is int and value.bit_length() > MOST_BITS:
        _refuse(path, f"{of}has more than {MOST_BITS} bits", "keep it as a list of parts")
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse(path, f"{of}is no valid Unicode", "encode it otherwise")
    return value


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
