"""Digests of a file's text, so that two processes find what they have alike from its beginning."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

PIECE_BYTES = 1 << 20
_DIGEST_BYTES = 16

Read = Callable[[int, int], bytes]
"""Of a file: from which byte, how many."""


class Prefixes:
    """Of one file's text, which only grows or is cut."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._hashes = [hashlib.blake2b(digest_size=_DIGEST_BYTES)]
        """Of so many whole pieces."""

    def cut(self, size: int) -> None:
        """What is behind ``size`` bytes may be other text from now on."""
        del self._hashes[size // PIECE_BYTES + 1 :]

    def digest(self, size: int) -> str:
        """Of the first ``size`` bytes."""
        self._grow(size)
        digest = self._hashes[size // PIECE_BYTES].copy()
        at = size - size % PIECE_BYTES
        digest.update(self._read(at, size - at))
        return digest.hexdigest()

    def whole(self, size: int) -> list[bytes]:
        """Of one piece, of two, and so on."""
        self._grow(size)
        return [each.digest() for each in self._hashes[1 : size // PIECE_BYTES + 1]]

    def _grow(self, size: int) -> None:
        while len(self._hashes) <= size // PIECE_BYTES:
            digest = self._hashes[-1].copy()
            digest.update(self._read((len(self._hashes) - 1) * PIECE_BYTES, PIECE_BYTES))
            self._hashes.append(digest)


def alike(ours: Sequence[bytes], theirs: Sequence[bytes]) -> int:
    """So many bytes are the same from the beginning."""
    pairs = zip(ours, theirs, strict=False)
    differ = (n for n, (one, other) in enumerate(pairs) if one != other)
    return PIECE_BYTES * next(differ, min(len(ours), len(theirs)))
