"""Rows in one sample: each once and whole, and a model computes what it does of each alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd import data
from elasticd.data.packed import PackedRows
from elasticd.errors import UsageError

LENGTH = 24


def rows_of(*sizes: int) -> list[list[int]]:
    dice = np.random.default_rng(0)
    return [dice.integers(1, 255, size).tolist() for size in sizes]


def taken_apart(packed: PackedRows) -> list[list[int]]:
    found = []
    for tokens, numbers in (packed[at] for at in range(len(packed))):
        assert tokens.dtype == numbers.dtype == np.int32 and len(tokens) == len(numbers)
        assert not tokens[numbers == 0].any()
        found += [tokens[numbers == n].tolist() for n in range(1, numbers.max(initial=0) + 1)]
    return found


@given(st.lists(st.integers(1, LENGTH), max_size=150), st.integers(0, 3))
def test_each_row_is_there_once_and_whole(sizes: list[int], seed: int) -> None:
    rows = rows_of(*sizes)
    packed = data.packed(rows, LENGTH, seed=seed)
    assert sorted(taken_apart(packed)) == sorted(rows)
    again = data.packed(rows, LENGTH, seed=seed)
    assert taken_apart(again) == taken_apart(packed)


def test_little_is_left_empty() -> None:
    rows = rows_of(*[5, 9, 14, 3] * 40)
    assert len(data.packed(rows, LENGTH)) <= 1.1 * sum(map(len, rows)) / LENGTH


class Attends(nn.Module):
    """With positions that it learns, so that each row has to have its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, 16), nn.Embedding(LENGTH, 16)
        self.attention, self.out = nn.MultiHeadAttention(16, 2), nn.Linear(16, 256)

    def __call__(self, tokens: mx.array, rows: mx.array) -> mx.array:
        x = self.tokens(tokens) + self.places(data.row_positions(rows))
        return self.out(x + self.attention(x, x, x, mask=data.row_mask(rows)))


def test_a_row_is_the_same_alone_and_among_others() -> None:
    mx.random.seed(1)
    model, rows = Attends(), rows_of(5, 9, 7)
    ((tokens, numbers),) = list(data.packed(rows, LENGTH)[at] for at in range(1))
    together = model(mx.array(tokens)[None], mx.array(numbers)[None])[0]
    for number in range(1, 4):
        at = np.flatnonzero(numbers == number)
        row = mx.array(tokens[at])[None]
        alone = model(row, mx.ones_like(row))[0]
        assert mx.allclose(together[mx.array(at)], alone, atol=1e-5).item()


def test_positions_and_targets() -> None:
    rows = mx.array([[1, 1, 1, 2, 3, 3, 0, 0]])
    assert data.row_positions(rows).tolist() == [[0, 1, 2, 0, 0, 1, 0, 0]]
    assert data.row_targets(rows).tolist() == [[True, True, False, False, True, False, False]]
    mask = data.row_mask(rows)
    assert mask.shape == (1, 1, 8, 8) and mask.any(axis=-1).all().item(), "no row of it is empty"
    assert mask[0, 0, 2].tolist() == [True] * 3 + [False] * 5


def test_of_cached_rows_lengths_are_known_unread(tmp_path: Path) -> None:
    texts = ["ab", "", "abcdef"]
    tokens = data.cached(texts, lambda text: list(text.encode()), key="k", folder=tmp_path)
    assert tokens.lengths() == [2, 0, 6]
    packed = data.packed(tokens, LENGTH)
    assert len(packed) == 1 and set(packed.digests_by_file()) == {"tokens"}
    assert packed.name(0).endswith(" and 1 more"), "the one without tokens is left out"


def test_rows_without_tokens_make_no_samples() -> None:
    rows: list[list[int]] = [[], [1, 2], [], [3], []]
    together = taken_apart(data.packed(rows, 2))
    assert sorted(together) == [[1, 2], [3]]
    assert len(data.packed([], LENGTH)) == 0
    with pytest.raises(UsageError, match="none of its 2 rows has a token"):
        data.packed([[], []], LENGTH)


@pytest.mark.parametrize(
    "helper", [data.row_mask, data.row_positions, data.row_targets], ids=lambda f: f.__name__
)
def test_the_rows_of_one_sample_are_no_batch(helper: Callable[[mx.array], mx.array]) -> None:
    with pytest.raises(UsageError) as caught:
        helper(mx.array([1, 1, 2]))
    assert str(caught.value) == (
        f"{helper.__name__}() takes the numbers of a batch, int[samples, length], not int32[3]:"
        " of one sample give rows[None]"
    )
    with pytest.raises(UsageError, match=r"not int32\[1,1,2\]$"):
        helper(mx.array([[[1, 1]]]))


@pytest.mark.parametrize("length", [0, True, 2.5])
def test_a_length_that_is_none(length: int) -> None:
    with pytest.raises(UsageError, match="packed\\(\\) takes a length"):
        data.packed([[1]], length)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ([1.5, 2.0], "float64[2]"),
        (np.array([1 << 40]), "int64[1]"),
        ([1 << 31], "int64[1]"),
        (np.ones((2, 2), np.int64), "int64[2, 2]"),
        ("12", "<U2[]"),
        (mx.array([0.5]), "float32[1]"),
    ],
)
def test_what_would_become_other_tokens_is_refused_by_row(row: Any, what: str) -> None:
    packed = data.packed([row], LENGTH)
    with pytest.raises(UsageError) as caught:
        packed[0]
    assert str(caught.value).startswith(f"packed(): row 0 has {what}, which are no tokens")
    assert data.packed([mx.array([5])], LENGTH)[0][0][0] == 5


def test_a_row_that_is_too_long_is_named() -> None:
    with pytest.raises(UsageError, match="row 1 has 4 tokens, more than length=3: cut it"):
        data.packed([[1], [1, 2, 3, 4]], 3)
    packed = data.packed([[1]], 3)
    with pytest.raises(IndexError):
        packed[1]
