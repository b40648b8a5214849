from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

from elasticd.errors import UsageError
from elasticd.train.steps.data import StreamSource, source_of, stack
from elasticd.train.steps.sampling import Batches

BATCHES = Batches(6, 2)


class Pair(NamedTuple):
    x: Any
    y: Any


def test_samples_stack_along_a_new_first_axis() -> None:
    batch = stack([{"x": np.zeros((2, 3), np.float32), "y": (1, 0.5)} for _ in range(4)])
    assert batch["x"].shape == (4, 2, 3) and batch["x"].dtype == mx.float32
    assert batch["y"][0].dtype == mx.int32 and batch["y"][1].dtype == mx.float32
    pair = stack([Pair(mx.array([1, 2]), np.int64(7))] * 3)
    assert isinstance(pair, Pair) and pair.x.shape == (3, 2) and pair.y.tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    "samples", [["text"], [None], [np.zeros(2), np.zeros(3)], [{"a": 1}, {"b": 1}], [(1,), (1, 2)]]
)
def test_what_does_not_stack_is_said(samples: list[Any]) -> None:
    with pytest.raises(UsageError, match="stack"):
        stack(samples)


@pytest.mark.parametrize("data", [[], 7, None])
def test_what_is_no_dataset(data: Any) -> None:
    with pytest.raises(UsageError, match="data="):
        source_of(data, BATCHES, 0)


class Counter:
    """A stream of ``length`` numbers that knows where it is."""

    def __init__(self, length: int) -> None:
        self._length, self._at = length, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self._at == self._length:
            raise StopIteration
        self._at += 1
        return self._at - 1

    def state(self) -> int:
        return self._at

    def load_state(self, at: int) -> None:
        self._at = at


def expected(length: int, step: int, grain: int) -> list[int]:
    return [at % length for at in BATCHES.positions(step, grain)]


@pytest.mark.parametrize("length", [1, 4, 7, 100])
def test_a_stream_goes_by_position_in_any_order(length: int) -> None:
    source = StreamSource(lambda: iter(range(length)), BATCHES, 0)
    for step, grain in [(1, 0), (1, 0), (1, 2), (1, 1), (3, 1), (3, 0), (2, 2), (5, 2)]:
        assert source.samples(step, grain) == expected(length, step, grain)


def test_a_stream_with_state_is_continued_elsewhere() -> None:
    one, other = (StreamSource(lambda: Counter(7), BATCHES, 0) for _ in range(2))
    one.samples(2, 0)  # this rank owns only the first grain
    assert one.has_state
    other.load_state(one.state(2))
    assert other.state(2) == one.state(2)
    assert other.samples(3, 1) == expected(7, 3, 1)


@pytest.mark.parametrize("indexed", [True, False])
def test_what_is_drawn_while_a_sample_is_fetched_depends_on_its_position(indexed: bool) -> None:
    """Else ranks that fetch other grains, or in another order, would see other samples."""

    class Noisy:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> tuple[int, float, float, float]:
            return index, random.random(), np.random.random(), float(mx.random.uniform())

    def stream() -> Iterator[Any]:
        order = list(range(5))
        random.shuffle(order)
        yield from map(Noisy().__getitem__, order)

    wanted, found = (source_of(Noisy() if indexed else stream, BATCHES, 3) for _ in range(2))
    grains = [(step, grain) for step in (1, 2, 3) for grain in range(2)]
    seen = {where: wanted.samples(*where) for where in grains}
    for where in [(2, 1), (2, 0), (3, 0), (1, 1)]:
        random.seed(where[0])
        np.random.seed(where[0])
        mx.random.seed(where[0])
        assert found.samples(*where) == seen[where]
    every = [sample[1:] for samples in seen.values() for sample in samples]
    assert len(set(every)) == len(every)


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        StreamSource(lambda: iter(()), BATCHES, 0).samples(1, 0)
