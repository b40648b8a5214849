"""What a sample holds, as a digest."""

from __future__ import annotations

import functools
import hashlib
import os
import struct
from typing import Any

import mlx.core as mx
import numpy as np


class LineDigests:
    """What is in a file's lines, so that one which differs is found: a digest of each, or, where
    there are more than so many lines, of as many together as it takes."""

    def __init__(self, most: int) -> None:
        """``most`` is even."""
        self._most, self._each, self._count = most, 1, 0
        self._digests: list[bytes] = []

    def add(self, line: bytes) -> None:
        """The next one."""
        digest = hashlib.blake2b(line, digest_size=16).digest()
        if self._count % self._each:
            self._digests[-1] = _joined(self._digests[-1], digest)
        else:
            self._digests.append(digest)
        self._count += 1
        if len(self._digests) > self._most:
            last = self._digests.pop()
            pairs = zip(self._digests[::2], self._digests[1::2], strict=True)
            self._digests = [*(_joined(*pair) for pair in pairs), last]
            self._each *= 2

    def named(self, name: str) -> dict[str, str]:
        """How many lines the file of this name has, and the digests by line."""
        found = {name: f"{self._count} lines"}
        for at, digest in enumerate(self._digests):
            first, last = at * self._each + 1, min((at + 1) * self._each, self._count)
            lines = f"{name}:{first}" if first == last else f"{name}, lines {first} to {last}"
            found[lines] = digest.hex()
        return found


def _joined(one: bytes, other: bytes) -> bytes:
    return hashlib.blake2b(one + other, digest_size=16).digest()


def sample_digest(sample: Any) -> str:
    """In hex, of numbers, strings, arrays, and dicts, lists, tuples and sets of them. Of an object
    of another kind only its type counts."""
    return _digest(sample).hex()


def content_digest(value: Any) -> str:
    """As :func:`sample_digest`, where nothing in it counts by its type alone.

    Raises:
        TypeError: something would; names its type.
    """
    return _digest(value, whole=True).hex()


def portable_digest(value: Any) -> str:
    """As :func:`sample_digest`, but of an absolute path its last part alone counts: where a folder
    lies may differ by node."""
    return _digest(value, portable=True).hex()


def _digest(value: Any, *, whole: bool = False, portable: bool = False) -> bytes:
    of = functools.partial(_digest, whole=whole, portable=portable)
    digest = hashlib.blake2b(type(value).__name__.encode() + b"\0", digest_size=16)
    if portable and isinstance(value, str) and os.path.isabs(value):
        digest.update(os.path.basename(value).encode(errors="surrogatepass"))
    elif isinstance(value, (bool, int, str)) or value is None:
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
        if not value.dtype.hasobject:
            digest.update(value.tobytes())
        elif whole:
            digest.update(of(value.tolist()))
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(of(key) + of(item))
    elif isinstance(value, (list, tuple)):
        for item in value:
            digest.update(of(item))
    elif isinstance(value, (set, frozenset)):
        digest.update(b"".join(sorted(of(item) for item in value)))
    elif whole:
        raise TypeError(type(value).__qualname__)
    return digest.digest()
