"""Steps and where their texts end, one by one, 16 bytes a step: what an earlier version writes and
tells."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from elasticd.stepindex import BASE, Record

_RECORD = struct.Struct("<QQ")
RECORD_BYTES = _RECORD.size


def packed(records: Iterable[Record], text: bytes) -> bytes:
    """Records, then text."""
    return b"".join(_RECORD.pack(step - BASE, end) for step, end in records) + text


def unpacked(content: bytes, start: int) -> tuple[list[Record], bytes]:
    """Records, with where each step's text ends, and the text, which begins at ``start``."""
    records, at, end = [], 0, start
    while end - start + at < len(content):
        step, end = _RECORD.unpack_from(content, at)
        records.append((step + BASE, end))
        at += RECORD_BYTES
    return records, content[at:]


def sensible(data: bytes, size: int) -> Iterator[Record]:
    """Those of an earlier version's index, as far as they make sense for a file of ``size``."""
    before = (BASE - 1, 0)
    for step, end in _RECORD.iter_unpack(data[: len(data) - len(data) % RECORD_BYTES]):
        if step + BASE <= before[0] or not before[1] <= end <= size:
            return
        before = step + BASE, end
        yield before
