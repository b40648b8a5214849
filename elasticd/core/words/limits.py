"""How long what daemons say and keep may be: texts are clipped, collections sent in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from elasticd.recovery.signatures import last_words

MAX_REASON_LETTERS = 4000
"""Of a reason that people read, with the sentence that says what is missing."""
_FIRST_LETTERS = 1000
"""Kept of a reason that is too long, besides its end: of a traceback the last lines matter."""
_LINE_LETTERS = 300
"""Of a reason that is told once more, beside where all of it stands."""
PART_BYTES = 1 << 20
"""A collection is sent in messages of at most so much, or of one item."""
_ITEM_BYTES = 9
"""What msgpack puts before the longest text, list or number, or for the number itself."""

T = TypeVar("T")


def clipped(text: str) -> str:
    """The text, or its beginning and its end with a word on how much was between them."""
    if len(text) <= MAX_REASON_LETTERS:
        return text
    head = text[:_FIRST_LETTERS]
    cut = f" […] (clipped: it had {len(text)} letters) […] "
    return head + cut + text[len(head) + len(cut) - MAX_REASON_LETTERS :]


def in_short(reason: object) -> str | None:
    """A reason on one line; of a traceback the beginning and the end say it."""
    first, *rest = str(reason or "").strip().splitlines() or [""]
    if last := last_words("\n".join(rest)):
        return f"{first.strip()} … {last}"
    return first.strip() or None


def in_a_line(reason: str) -> str:
    """That, in few letters: the job, or the event, that it is about has all of them."""
    line = in_short(reason) or ""
    return line if len(line) <= _LINE_LETTERS else f"{line[: _LINE_LETTERS - 2]} …"


def bounded(word: T) -> T:
    """A word whose reason, if it has one, is clipped."""
    reason = getattr(word, "reason", None)
    if isinstance(reason, str) and len(reason) > MAX_REASON_LETTERS:
        return cast(T, replace(cast(Any, word), reason=clipped(reason)))
    return word


def most_bytes(value: Any) -> int:
    """What ``value`` takes in a frame at most; never less than it does take."""
    if isinstance(value, str):
        # A text of ASCII has as many bytes as letters, and is asked for nothing else.
        return _ITEM_BYTES + (len(value) if value.isascii() else 4 * len(value))
    if isinstance(value, (bytes, bytearray)):
        return _ITEM_BYTES + len(value)
    if isinstance(value, dict):
        return _ITEM_BYTES + sum(most_bytes(k) + most_bytes(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return _ITEM_BYTES + sum(map(most_bytes, value))
    size = _ITEM_BYTES
    kind: type = type(value)
    for name in _names(kind):
        size += _ITEM_BYTES + len(name) + most_bytes(getattr(value, name))
    return size


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Of a dataclass's fields, which are ASCII; of others there are none."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def in_parts(items: Iterable[T], part_bytes: int = PART_BYTES) -> Iterator[tuple[T, ...]]:
    """The items in order, as many at a time as fit; nothing if there are none."""
    part: list[T] = []
    size = 0
    for item in items:
        more = most_bytes(item)
        if part and size + more > part_bytes:
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += more
    if part:
        yield tuple(part)
