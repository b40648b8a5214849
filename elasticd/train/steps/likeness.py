"""What a sample holds, as a digest."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import struct
from typing import Any

import mlx.core as mx
import numpy as np

OF_TEXTS = "SUT"
"""Kinds of NumPy's arrays of texts."""


class LineDigests:
    """What is in a file's lines, so that one which differs is found: a digest of each, or, where
    there are more than so many lines, of as many together as it takes.

    These stay as they are: trainers of other builds have the same for the same lines.
    """

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
    of another kind only its type counts.

    It stays as it is: nodes of two builds compare a sample now and then by it.
    """
    return _digest(sample).hex()


def content_digest(value: Any) -> str:
    """As :func:`sample_digest`, where nothing in it counts by its type alone.

    Raises:
        TypeError: something would; names its type.
    """
    return _digest(value, whole=True).hex()


def portable_digest(value: Any) -> str:
    """As :func:`sample_digest`, but of an absolute path its last part alone counts, also within a
    text: where a folder lies may differ by node. Arrays of texts count text by text, as their
    letters' width goes by the longest. It has a form's number: :data:`contents.FORM`."""
    return _digest(value, portable=True).hex()


def _digest(value: Any, *, whole: bool = False, portable: bool = False) -> bytes:
    of = functools.partial(_digest, whole=whole, portable=portable)
    digest = hashlib.blake2b(type(value).__name__.encode() + b"\0", digest_size=16)
    if portable and isinstance(value, str):
        digest.update(_placeless(value).encode(errors="surrogatepass"))
    elif isinstance(value, (bool, int, str)) or value is None:
        digest.update(str(value).encode(errors="surrogatepass"))
    elif isinstance(value, float):
        digest.update(struct.pack("<d", value))
    elif isinstance(value, (bytes, bytearray)):
        digest.update(value)
    elif isinstance(value, mx.array):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(memoryview(value).tobytes())  # type: ignore[arg-type]
    elif portable and isinstance(value, np.ndarray) and value.dtype.kind in OF_TEXTS:
        digest.update(f"{value.dtype.kind}{value.shape}".encode())
        digest.update(of(_texts(value).tolist()))
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


def _texts(array: Any) -> Any:
    return np.char.decode(array, errors="surrogateescape") if array.dtype.kind == "S" else array


def _placeless(text: str) -> str:
    """Without the folders of absolute paths. All nodes take the same text alike, whichever of them
    has such a folder."""
    if "/" not in text:
        return text
    own = os.getcwd()
    if os.path.isabs(text) and "\n" not in text:
        return os.path.basename(text) if text != own else ""
    return _folders(own).sub("", text)


@functools.cache
def _folders(own: str) -> re.Pattern[str]:
    """Of paths within a text, from their root on. Of a name with spaces nobody knows where it ends,
    but of the trainer's ``own`` folder."""
    own = re.escape(own.strip("/")) or "(?!)"
    inside = r"[^\s/\"'<>|,;:]"
    begins, folder = r"/(?:(?<=\bfile:///)|(?<![\w.~/-]/))", f"{inside}++/"
    return re.compile(f"{begins}(?:{own}(?:/(?:{folder})*+|(?!{inside}))|(?:{folder})++)")
