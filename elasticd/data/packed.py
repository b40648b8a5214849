"""Several short rows of tokens in one sample, so that little of a batch is padding.

No row is divided. Each token comes with the number of its row, by which a model keeps attention
apart and a loss counts only targets of the token's own row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.counting import counted
from elasticd.data.tokens import Tokens, as_tokens, name_of
from elasticd.errors import UsageError
from elasticd.train.states.trees import describe
from elasticd.train.steps.data import digests_of
from elasticd.train.steps.sampling import Permutation

_OPEN = 64
"""Samples that are filled at once."""


def fitted(sizes: Sequence[int], longest: int, seed: int) -> list[list[int]]:
    """Which rows are together, by their numbers: each once, none more than ``longest`` tokens in
    all. A function of sizes and seed."""
    if not sizes:
        return []
    order = Permutation(len(sizes), seed, 0)(np.arange(len(sizes), dtype=np.uint64))
    full: list[list[int]] = []
    places: list[tuple[int, list[int]]] = []
    for row in order.tolist():
        size = sizes[row]
        at = next((at for at, (room, _) in enumerate(places) if room >= size), None)
        if at is None:
            if len(places) == _OPEN:
                least = min(range(_OPEN), key=lambda at: places[at][0])
                full.append(places.pop(least)[1])
            places.append((longest, []))
            at = len(places) - 1
        room, held = places[at]
        places[at] = room - size, [*held, row]
    return full + [held for _, held in places]


def packed(rows: Any, length: int, *, seed: int = 0) -> PackedRows:
    """Rows of tokens, as samples of ``length`` tokens.

    Args:
        rows: what :func:`elasticd.data.cached` gives, or anything with ``len()`` and ``[index]``
            that has whole numbers in a line. It is read once for the lengths, if it isn't cached.
            Rows without tokens are left out.
        length: of a sample; no row may be longer.
        seed: which rows are together is a function of it.

    Raises:
        UsageError: a row is longer, or no row has a token.
    """
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UsageError(f"packed() takes a length of at least 1, not {length!r}")
    count = len(rows)
    lengths = rows.lengths() if hasattr(rows, "lengths") else [len(rows[i]) for i in range(count)]
    for row, size in enumerate(lengths):
        if size > length:
            raise UsageError(
                f"packed(): {name_of(rows, row)} has {size} tokens, more than length={length}: cut"
                " it, or pack into longer samples"
            )
    filled = [row for row, size in enumerate(lengths) if size]
    if count and not filled:
        raise UsageError(f"packed(): none of its {counted(count, 'row')} has a token")
    together = fitted([lengths[row] for row in filled], length, seed)
    return PackedRows(rows, length, [[filled[at] for at in sample] for sample in together])


class PackedRows:
    """For ``elasticd.Run(data=…)``. A sample is two arrays, int32[length]: the tokens, and of each
    token which row it is of, from 1 on; with 0 behind the last in both."""

    def __init__(self, rows: Any, length: int, together: Sequence[Sequence[int]]) -> None:
        self._rows, self._length, self._together = rows, length, together

    def __len__(self) -> int:
        return len(self._together)

    def __getitem__(self, sample: int) -> tuple[Tokens, NDArray[np.int32]]:
        if not 0 <= sample < len(self):
            raise IndexError(sample)
        tokens, numbers = (np.zeros(self._length, np.int32) for _ in range(2))
        begin = 0
        for number, row in enumerate(self._together[sample], start=1):
            found = as_tokens(self._rows[row], f"packed(): {name_of(self._rows, row)} has")
            end = begin + len(found)
            tokens[begin:end], numbers[begin:end] = found, number
            begin = end
        return tokens, numbers

    def name(self, sample: int) -> str:
        """Of the first of its rows."""
        together = self._together[sample]
        more = f" and {len(together) - 1} more" if len(together) > 1 else ""
        return f"{name_of(self._rows, together[0])}{more}"

    def digests_by_file(self) -> Mapping[str, str]:
        """Of what it is made of."""
        return digests_of(self._rows)


def row_mask(rows: mx.array) -> mx.array:
    """Which tokens see which, bool[samples, 1, length, length]: those before them, and themselves,
    of the same row. ``rows``: int[samples, length]. For ``mask=`` of MLX's attention.

    Raises:
        UsageError: ``rows`` has another shape. So do the two below.
    """
    _check_batch("row_mask", rows)
    at = mx.arange(rows.shape[1])
    return ((at[:, None] >= at[None]) & (rows[:, :, None] == rows[:, None]))[:, None]


def row_positions(rows: mx.array) -> mx.array:
    """The place of each token in its row, from 0, int32[samples, length]: for a model that learns
    positions. One with rotary or other relative positions needs none."""
    _check_batch("row_positions", rows)
    same = (rows[:, :, None] == rows[:, None]) & (rows[:, None] > 0)
    before = mx.tril(same, -1)
    return before.sum(axis=2).astype(mx.int32)


def row_targets(rows: mx.array) -> mx.array:
    """Which tokens, from the second on, are to be told from the one before: those of its row,
    bool[samples, length - 1]."""
    _check_batch("row_targets", rows)
    return (rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] > 0)


def _check_batch(name: str, rows: mx.array) -> None:
    if rows.ndim != 2:
        raise UsageError(
            f"{name}() takes the numbers of a batch, int[samples, length], not"
            f" {describe(rows)}{': of one sample give rows[None]' * (rows.ndim == 1)}"
        )
