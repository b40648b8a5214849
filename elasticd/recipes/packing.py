"""Several short rows in one sequence, so that little of a batch is padding.

No row sees another: attention is masked between them. Models of mlx-lm take a mask from their
cache, so they are given one that keeps nothing. Positions go on from row to row, which models with
relative positions (RoPE and the like) don't see; others are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from elasticd.data.packed import fitted, row_mask
from elasticd.errors import UsageError
from elasticd.recipes.rows import Row, Sample
from elasticd.train.steps.recompute import Unwritten

_LIKE = 0.02
"""Of the range of a model's output: as much as kernels may differ, and less than rows do that see
one another."""


def pack(rows: Sequence[Row], longest: int, seed: int) -> list[Sample]:
    """Samples of at most ``longest`` tokens, a function of rows and seed. No row is divided."""
    together = fitted([len(tokens) for tokens, _ in rows], longest, seed)
    return [tuple(rows[at] for at in numbers) for numbers in together]


class _Apart(Unwritten):
    """Stands where a layer's cache does: keeps nothing, and masks what is of other rows."""

    offset = 0

    def __init__(self, rows: mx.array) -> None:
        self._at, self._mask = mx.arange(rows.shape[1]), row_mask(rows)

    def make_mask(self, _: int, return_array: bool = True, window_size: int | None = None) -> Any:
        if window_size is None:
            return self._mask
        return self._mask & (self._at[:, None] < self._at[None] + window_size)

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values


def apart(model: Any, tokens: mx.array, rows: mx.array) -> Any:
    """What ``model`` says of sequences in which each token is of the row with that number."""
    return model(tokens, cache=[_Apart(rows)] * len(model.layers))


def check(model: Any) -> None:
    """See that a row's output is the same alone and behind two others. Leaves the ``model`` in
    training mode.

    Raises:
        UsageError: it isn't, or the model takes no such mask.
    """
    row = mx.array([[5, 6, 7, 8, 9]])
    before = mx.array([[1, 2, 3]]), mx.array([[3, 4, 1]])
    numbers = mx.array([[1] * 3 + [2] * 5])
    model.eval()
    try:
        alone = model(row)
        packed = [apart(model, mx.concatenate([one, row], 1), numbers)[:, 3:] for one in before]
        span = alone.max() - alone.min()
        fits = all(mx.abs(found - alone).max().item() <= _LIKE * span.item() for found in packed)
        sees = mx.abs(packed[0] - packed[1]).max().item() > _LIKE / 20 * span.item()
    except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:
        raise UsageError(f"packing: this kind of model takes no mask: {error!r}") from None
    finally:
        model.train()
    if sees or not fits:
        raise UsageError(
            "packing: rows of this kind of model are not the same behind others: set it to false"
        )
