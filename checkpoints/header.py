"""The header of a safetensors file: what is in it, and where. Pure; needs no MLX.

A file is an 8-byte little-endian length, that many bytes of JSON, and the tensors' little-endian
row-major bytes. See https://github.com/huggingface/safetensors#format. Everything read here is
checked before a byte of a tensor is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticd.errors import StateError

ITEM_BYTES: Mapping[str, int] = {
    **{"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2},
    **{"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8},
}
"""Bytes of one element, by the format's name of its type."""

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""The reference implementation's limit; it bounds what a rotten length can make us allocate."""
MAX_LENGTH = 2**31 - 1
"""Of one dimension; MLX counts in 32 bits."""
_METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file: its bytes are ``[start, end)`` of the file's data part."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds, ``entries`` in the order of their bytes; the first is at
    ``data_start``."""

    entries: tuple[TensorEntry, ...]
    metadata: Mapping[str, str]
    data_start: int

    @property
    def file_bytes(self) -> int:
        return self.data_start + (self.entries[-1].end if self.entries else 0)


def encode(
    tensors: Iterable[tuple[str, str, tuple[int, ...]]],
    metadata: Mapping[str, str],
    page_bytes: int = 1,
) -> tuple[Header, bytes]:
    """Lay out tensors ``(name, dtype, shape)``; returns the header and its bytes, length included.

    Wide types come first, then names in order, so that every tensor is aligned to its own element.
    The file is a whole number of pages: its head is filled with blanks, as the format allows.
    """
    entries: list[TensorEntry] = []
    end = 0
    for name, dtype, shape in sorted(tensors, key=lambda t: (-ITEM_BYTES[t[1]], t[0])):
        if name == _METADATA:
            raise ValueError(f"a tensor can't be named {_METADATA}")
        start, end = end, end + math.prod(shape) * ITEM_BYTES[dtype]
        entries.append(TensorEntry(name, dtype, shape, start, end))
    table: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    for entry in entries:
        offsets = [entry.start, entry.end]
        table[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": offsets}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    text += b" " * (-(LENGTH_BYTES + len(text) + end) % page_bytes)
    header = Header(tuple(entries), dict(metadata), LENGTH_BYTES + len(text))
    return header, len(text).to_bytes(LENGTH_BYTES, "little") + text


def text_bytes(first: bytes, file_bytes: int, where: str) -> int:
    """How long the JSON is, from the file's first eight bytes.

    Raises:
        StateError: the file is too short or the length can't be true.
    """
    length = int.from_bytes(first, "little")
    if len(first) < LENGTH_BYTES or length > min(MAX_HEADER_BYTES, file_bytes - LENGTH_BYTES):
        raise StateError(f"{where}: truncated, or not a safetensors file ({file_bytes} bytes)")
    return length


def decode(text: bytes, file_bytes: int, where: str) -> Header:
    """Read the JSON of a header and check it against the file's size.

    Raises:
        StateError: naming ``where`` and the tensor: unknown type, wrong size, offsets that overlap,
            leave a hole or don't end where the file does.
    """
    header = parse(text, where)
    for entry in header.entries:
        if header.data_start + entry.end > file_bytes:
            raise StateError(f"{where}: tensor {entry.name!r} ends past the end of the file")
    if header.file_bytes != file_bytes:
        extra = file_bytes - header.file_bytes
        raise StateError(f"{where}: {extra} bytes follow the last tensor")
    return header


def parse(text: bytes, where: str) -> Header:
    """Read the JSON of a header; how long the file is isn't known yet.

    Raises:
        StateError: as :func:`decode`.
    """
    try:
        table = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{where}: header is not JSON: {error}") from None
    if not isinstance(table, dict):
        raise StateError(f"{where}: header is not a JSON object")
    metadata = table.pop(_METADATA, None)
    metadata = {} if metadata is None else metadata  # null is what MLX writes for none
    if not _is_text_map(metadata):
        raise StateError(f"{where}: {_METADATA} is not a map of strings")
    entries = sorted(
        (_entry(name, value, where) for name, value in table.items()),
        key=lambda e: (e.start, e.end),
    )
    header = Header(tuple(entries), metadata, LENGTH_BYTES + len(text))
    position = 0
    for entry in entries:
        if entry.start != position:
            what = "overlaps the one before" if entry.start < position else "follows a hole"
            raise StateError(f"{where}: tensor {entry.name!r} {what}")
        position = entry.end
    return header


def _entry(name: str, value: object, where: str) -> TensorEntry:
    def wrong(what: str) -> StateError:
        return StateError(f"{where}: tensor {name!r}: {what}")

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise wrong("needs dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise wrong(f"unknown dtype {dtype!r}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise wrong("shape and data_offsets must be lists of numbers from 0 up")
    if any(length > MAX_LENGTH for length in shape):
        raise wrong(f"shape {shape} is longer than {MAX_LENGTH}")
    start, end = offsets
    wanted = math.prod(shape) * ITEM_BYTES[dtype]
    if end - start != wanted:
        raise wrong(
            f"{dtype} of shape {shape} takes {wanted} bytes, data_offsets give {end - start}"
        )
    return TensorEntry(name, dtype, tuple(shape), start, end)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table
