"""What is in data that every node makes or loads by itself: digests, by sample.

Only of data that lie in memory, or in tables of Arrow's, and are small: a start takes no longer for
it than a blink. What is bigger, or of a class of one's own, is compared a sample now and then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from elasticd.train.steps.likeness import OF_TEXTS, portable_digest

FORM = 1
"""Raised whenever the same samples get other names or digests, here, in ``portable_digest`` or of
rows that are measured (recipes/rows.py): trainers of two builds train together while a cluster is
upgraded, and a job remembers with which samples it began. Only those of one form are compared."""
_PIECE_BYTES = 4096
_MOST_PIECES = 16_384
_MOST_BYTES = _MOST_PIECES * _PIECE_BYTES
"""64 MiB in all; each number, text or array counts as one piece at least. No time is measured: all
nodes must come to the same answer."""
_MOST_DIGESTS = 512
"""That nodes tell one another."""
_TABLE = "datasets.arrow_dataset"
_AT_ONCE = 1000
"""Samples: rows of a table, and arrays of MLX's, would take longer one by one."""

Between = Callable[[int, int], str]
"""The digest of the samples from one number up to another."""


def digests_by_sample(data: Any) -> dict[str, str]:
    """By names such as ``sample 17``, the first being 0; empty where the data are none of these."""
    between = _between(data)
    if between is None:
        return {}
    count = len(data)
    each = -(-count // _MOST_DIGESTS)
    return {_name(at, end): between(at, end) for at, end in _spans(count, each)}


def _spans(count: int, each: int) -> Iterator[tuple[int, int]]:
    return ((at, min(at + each, count)) for at in range(0, count, each))


def _name(first: int, end: int) -> str:
    return f"sample {first}" if end == first + 1 else f"samples {first} to {end - 1}"


def _between(data: Any) -> Between | None:
    kind: Any = type(data)
    if kind is mx.array or (kind is np.ndarray and data.dtype != object):
        fits = data.nbytes <= _MOST_BYTES and _texts(data) <= _MOST_PIECES
        return (lambda first, end: portable_digest(data[first:end])) if fits else None
    if kind in (list, tuple):
        return _of_each(data[at:end] for at, end in _spans(len(data), _AT_ONCE))
    if kind.__module__ == _TABLE and data.data.nbytes <= _MOST_BYTES:
        return _of_each(_rows(data.with_format("arrow")))
    return None


def _rows(table: Any) -> Iterator[Any]:
    """As they are stored, whatever is made of them when they are used."""
    for at, end in _spans(len(table), _AT_ONCE):
        yield table[at:end].to_pylist()


def _of_each(parts: Iterable[Sequence[Any]]) -> Between | None:
    """``parts``: some samples after the others."""
    room, digests = _MOST_PIECES, list[str]()
    for part in parts:
        for sample in part:
            room -= _pieces(sample, room)
            if room < 0:
                return None
        mx.eval(part)
        digests += map(portable_digest, part)

    def between(first: int, end: int) -> str:
        if end == first + 1:
            return digests[first]
        return hashlib.blake2b("".join(digests[first:end]).encode(), digest_size=16).hexdigest()

    return between


def _pieces(sample: Any, most: int) -> int:
    """How many it is of; more than ``most``: that is known."""
    count, left = 0, [sample]
    while left and count <= most:
        value = left.pop()
        count += 1
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            left += value
        elif isinstance(value, (str, bytes, bytearray)):
            count += len(value) // _PIECE_BYTES
        else:
            count += getattr(value, "nbytes", 0) // _PIECE_BYTES + _texts(value)
    return count


def _texts(value: Any) -> int:
    """How many an array holds."""
    return value.size if isinstance(value, np.ndarray) and value.dtype.kind in OF_TEXTS else 0
