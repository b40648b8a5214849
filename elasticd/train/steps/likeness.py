"""What a sample holds, as a digest."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import mlx.core as mx
import numpy as np


def sample_digest(sample: Any) -> str:
    """In hex, of numbers, strings, arrays, and dicts, lists, tuples and sets of them. Of an object
    of another kind only its type counts."""
    return _digest(sample).hex()


def _digest(value: Any) -> bytes:
    digest = hashlib.blake2b(type(value).__name__.encode() + b"\0", digest_size=16)
    if isinstance(value, (bool, int, str)) or value is None:
        digest.update(str(value).encode(errors="surrogatepass"))
    elif isinstance(value, float):
        digest.update(struct.pack("<d", value))
    elif isinstance(value, (bytes, bytearray)):
        digest.update(value)
    elif isinstance(value, mx.array):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(memoryview(mx.contiguous(value).reshape(-1).view(mx.uint8)))  # type: ignore[arg-type]
    elif isinstance(value, (np.ndarray, np.generic)):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(b"" if value.dtype.hasobject else value.tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(_digest(key) + _digest(item))
    elif isinstance(value, (list, tuple)):
        for item in value:
            digest.update(_digest(item))
    elif isinstance(value, (set, frozenset)):
        digest.update(b"".join(sorted(_digest(item) for item in value)))
    return digest.digest()
