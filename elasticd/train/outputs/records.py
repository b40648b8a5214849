"""Steps and where their texts end, one by one: what an earlier version writes and tells, 16 bytes
a step, and what is made of several ranks' files."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

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


def merged(files: Sequence[tuple[Iterable[Record], bytes]]) -> tuple[list[Record], bytes]:
    """One file with every step that any of them has, as the first that has it."""
    texts: dict[int, bytes] = {}
    for records, text in files:
        start = 0
        for step, end in records:
            texts.setdefault(step, text[start:end])
            start = end
    made, end = [], 0
    for step in sorted(texts):
        end += len(texts[step])
        made.append((step, end))
    return made, b"".join(texts[step] for step in sorted(texts))
