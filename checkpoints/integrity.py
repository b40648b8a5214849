"""Digests of shard files, computed while their bytes go by.

A digest is text that names its algorithm:

- ``blake3:<64 hex digits>`` is blake3 of the file's head (the length and the JSON of a safetensors
  file), whose metadata has under :data:`KEY` the blake3 of each tensor's bytes, in their order. So
  every byte is hashed once, and a file that changed says in which tensor.
- 64 hex digits alone are blake2b (32 bytes) of the whole file, as the first versions wrote.

blake3 (https://github.com/BLAKE3-team/BLAKE3-specs) is five times as fast here as blake2b on one
core, so that hashing is not felt beside a disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from blake3 import blake3

from elasticd.checkpoints import header
from elasticd.errors import RotError, StateError

KEY = "blake3"
"""The metadata entry with the tensors' digests, one after the other, in hex."""
PREFIX = "blake3:"
DIGEST_DIGITS = 64
_HEX = frozenset("0123456789abcdef")

Chunk = bytes | bytearray | memoryview


def is_digest(text: str) -> bool:
    """Whether ``text`` is a shard's digest, of either algorithm."""
    digits = text.removeprefix(PREFIX)
    return len(digits) == DIGEST_DIGITS and set(digits) <= _HEX


def head_digest(head: Chunk) -> str:
    """The digest of a shard whose head (length and JSON) is this."""
    return PREFIX + blake3(head).hexdigest()


class Hasher(Protocol):
    def update(self, data: Chunk, /) -> object: ...

    def hexdigest(self) -> str: ...


def tensor_hasher() -> Hasher:
    """For the bytes of one tensor."""
    return blake3()


@dataclass(frozen=True, slots=True)
class Difference:
    """What was found in a file that should have had another digest: ``digest`` is what it has,
    ``tensor`` the first that differs, where that can be said."""

    digest: str
    tensor: str | None
    reason: str


class Verifier:
    """Checks a shard against its digest while its bytes are given in order."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._whole = None if digest.startswith(PREFIX) else hashlib.blake2b(digest_size=32)
        self._head = bytearray()
        self._layout: header.Header | None = None
        self._wanted: Sequence[str] = ()
        self._hasher: Hasher = blake3()
        self._at = 0
        self._left = 0
        self._difference: Difference | None = None

    def update(self, data: Chunk) -> None:
        """Take in the next bytes, any number of them."""
        if self._whole is not None:
            self._whole.update(data)
            return
        view = memoryview(data).cast("B")
        if self._layout is None and self._difference is None:
            view = self._take_head(view)
        while view and self._layout is not None and self._difference is None:
            if self._at == len(self._layout.entries):
                self._wrong(None, "bytes follow the last tensor")
                return
            piece = view[: self._left]
            self._hasher.update(piece)
            self._left -= len(piece)
            view = view[len(piece) :]
            self._close_tensors()

    def finish(self) -> Difference | None:
        """None if all bytes were those of the digest."""
        if self._whole is not None:
            digest = self._whole.hexdigest()
            if digest == self._digest:
                return None
            return Difference(digest, None, f"its digest is {digest}, not {self._digest}")
        if self._difference is None:
            if self._layout is None:
                self._wrong(None, "it ends inside its head")
            elif self._at < len(self._layout.entries):
                self._wrong(self._layout.entries[self._at].name, "it is cut")
        return self._difference

    def _take_head(self, view: memoryview) -> memoryview:
        """Move bytes into the head until that is whole; returns the rest."""
        for _ in range(2):  # the length, then the JSON
            wanted = self._head_bytes()
            missing = wanted - len(self._head)
            self._head += view[:missing]
            view = view[missing:]
            if len(self._head) < wanted:
                return view
        if head_digest(self._head) != self._digest:
            found = head_digest(self._head)
            self._wrong(None, f"its digest is {found}, not {self._digest}", found)
            return view
        try:
            self._layout = header.parse(bytes(self._head[header.LENGTH_BYTES :]), "the shard")
            self._wanted = digests_of(self._layout)
        except StateError as error:
            self._layout = None
            self._wrong(None, str(error))
            return view
        if self._layout.entries:
            self._left = _size(self._layout.entries[0])
            self._close_tensors()
        return view

    def _head_bytes(self) -> int:
        """How long the head is, as far as that is known."""
        if len(self._head) < header.LENGTH_BYTES:
            return header.LENGTH_BYTES
        length = int.from_bytes(self._head[: header.LENGTH_BYTES], "little")
        return header.LENGTH_BYTES + min(length, header.MAX_HEADER_BYTES)

    def _close_tensors(self) -> None:
        assert self._layout is not None
        entries = self._layout.entries
        while self._left == 0 and self._at < len(entries):
            if self._hasher.hexdigest() != self._wanted[self._at]:
                name = entries[self._at].name
                self._wrong(name, f"tensor {name!r} is not what was written")
                return
            self._at += 1
            self._hasher = blake3()
            if self._at < len(entries):
                self._left = _size(entries[self._at])

    def _wrong(self, tensor: str | None, reason: str, digest: str = "") -> None:
        self._difference = Difference(digest, tensor, reason)


def digests_of(head: header.Header) -> Sequence[str]:
    """The tensors' digests that a head names, in the order of its entries.

    Raises:
        StateError: it names none, or not one for each.
    """
    text = head.metadata.get(KEY, "")
    if len(text) != DIGEST_DIGITS * len(head.entries):
        raise StateError("its head has no digest for each tensor")
    return [text[i : i + DIGEST_DIGITS] for i in range(0, len(text), DIGEST_DIGITS)]


def with_digests(metadata: Mapping[str, str], digests: Iterable[str]) -> dict[str, str]:
    """``metadata`` as the head of a file has it."""
    return {**metadata, KEY: "".join(digests)}


def verified(chunks: Iterable[Chunk], digest: str, where: str) -> Iterator[Chunk]:
    """The same chunks; a consumer that has come to their end has bytes of that digest.

    Raises:
        RotError: beginning with ``where``, at the end, if they haven't.
    """
    check = Verifier(digest)
    for chunk in chunks:
        check.update(chunk)
        yield chunk
    if (difference := check.finish()) is not None:
        raise RotError(f"{where}: {difference.reason}")


def _size(entry: header.TensorEntry) -> int:
    return entry.end - entry.start
