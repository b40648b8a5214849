"""Plain results as bytes: what ``run.on_main`` brings from one rank to the others."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import msgpack
import numpy as np

from elasticd.errors import UsageError
from elasticd.train.states.trees import is_numeric, named

MOST_BYTES = 1 << 20
_TUPLE, _INTEGER, _MLX, _NUMPY = range(4)
_SMALL = range(-(1 << 63), 1 << 64)
_KEYS = (str, int, float, bool, bytes, type(None))
_HOW = "return None, numbers, texts, bytes, arrays, and lists, tuples and dicts of them"


def packed(value: Any) -> bytes:
    """
    Raises:
        UsageError: the value is no plain one, or too large.
    """
    try:
        data = _bytes(_plain(value, ""))
    except (RecursionError, ValueError):
        raise UsageError("run.on_main(): what the function returned is nested too deep") from None
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"run.on_main(): what the function returned has {len(data)} bytes, {MOST_BYTES} are "
            "the most: write it to a file of run.output_dir, or compute it on every rank"
        )
    return data


def unpacked(data: bytes) -> Any:
    """The inverse of :func:`packed`."""
    return msgpack.unpackb(
        data, ext_hook=_read, strict_map_key=False, unicode_errors="surrogatepass"
    )


def _bytes(value: Any) -> bytes:
    data: bytes = msgpack.packb(value, strict_types=True, unicode_errors="surrogatepass")
    return data


def _plain(value: Any, where: str) -> Any:
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes):
        return value
    if kind is int:
        return value if value in _SMALL else _integer(value)
    if kind is list:
        return [_plain(item, f"{where}[{n}]") for n, item in enumerate(value)]
    if kind is tuple:
        items = [_plain(item, f"{where}[{n}]") for n, item in enumerate(value)]
        return msgpack.ExtType(_TUPLE, _bytes(items))
    if kind is dict:
        for key in value:
            if type(key) not in _KEYS or (type(key) is int and key not in _SMALL):
                _refuse(key, f"as a key of {where or 'it'}")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, mx.array):
        raw = np.array(value.reshape(-1).view(mx.uint8)).tobytes()
        name = str(value.dtype).removeprefix("mlx.core.")
        return msgpack.ExtType(_MLX, msgpack.packb([name, list(value.shape), raw]))
    if is_numeric(value) and value.dtype.kind in "biufc":
        array = np.asarray(value)
        scalar = isinstance(value, np.generic)
        content = [array.dtype.str, list(array.shape), array.tobytes(), scalar]
        return msgpack.ExtType(_NUMPY, msgpack.packb(content))
    return _refuse(value, f"at {where}" if where else "")


def _integer(value: int) -> Any:
    size = value.bit_length() // 8 + 1
    return msgpack.ExtType(_INTEGER, value.to_bytes(size, "big", signed=True))


def _refuse(value: Any, where: str) -> Any:
    found = f"{named(value)} {where}".rstrip()
    raise UsageError(f"run.on_main(): the function returned {found}; {_HOW}")


def _read(code: int, data: bytes) -> Any:
    if code == _INTEGER:
        return int.from_bytes(data, "big", signed=True)
    if code == _TUPLE:
        return tuple(unpacked(data))
    name, shape, raw, *scalar = msgpack.unpackb(data)
    if code == _MLX:
        dtype = mx.bool_ if name == "bool" else getattr(mx, name)
        flat = mx.array(np.frombuffer(raw, np.uint8))
        return flat.view(dtype).reshape(shape) if raw else mx.zeros(shape, dtype)
    array = np.frombuffer(raw, np.dtype(name)).reshape(shape).copy()
    return array[()] if scalar[0] else array
