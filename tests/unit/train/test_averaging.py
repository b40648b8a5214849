"""Gradients of scripts with a group of their own; test_plain.py sums over real ranks."""

from __future__ import annotations

import math
from itertools import pairwise

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elasticd
from elasticd.errors import UsageError
from elasticd.train.averaging import buckets


def test_one_rank_keeps_its_own() -> None:
    grads = {"w": mx.ones(3), "layers": [mx.zeros(2)]}
    assert elasticd.average_gradients(grads, weight=5) is grads
    assert elasticd.all_reduce_grads(grads) is grads


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none(weight: float) -> None:
    with pytest.raises(UsageError, match="weight= must be a finite number from 0"):
        elasticd.average_gradients({}, weight=weight)


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_buckets_are_full_and_none_is_left_out(sizes: list[int], most: int) -> None:
    found = list(buckets(sizes, most))
    assert [at for start, end in found for at in range(start, end)] == list(range(len(sizes)))
    held = [sum(sizes[start:end]) for start, end in found]
    assert all(n <= most for n, (a, b) in zip(held, found, strict=True) if b - a > 1)
    for (start, end), (_, after) in pairwise(found):
        assert sum(sizes[start : end + 1]) > most and after > end, "the next one had no room"
