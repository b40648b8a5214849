"""Samples that are changed where they are kept are told of at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from elasticd.errors import UsageError
from elasticd.train.steps.data import IndexedSource, StreamSource, batch_of, stack
from elasticd.train.steps.sampling import Batches
from elasticd.train.steps.unchanged import GivenSamples

BATCHES = Batches(6, 2)


def halved(samples: list[Any]) -> Any:
    for sample in samples:
        sample /= 2
    return mx.array(np.stack(samples))


def popped(samples: list[Any]) -> Any:
    return mx.array([sample.pop("label") for sample in samples])


def written(samples: list[Any]) -> Any:
    samples[1][0][2] = 0.5
    return samples[0][0]


KEPT: list[tuple[Callable[[list[Any]], Any], Callable[[int], Any]]] = [
    (halved, lambda i: np.full(3, i + 1.0)),
    (popped, lambda i: {"label": i}),
    (written, lambda i: (mx.array([0.0, 1.0, i]), i)),
]


@pytest.mark.parametrize(("collate", "make"), KEPT)
def test_collate_must_leave_alone_what_is_kept(
    collate: Callable[[list[Any]], Any], make: Callable[[int], Any]
) -> None:
    source = IndexedSource([make(i) for i in range(20)], BATCHES, 0)
    with pytest.raises(UsageError, match=r"sample at position [01] of the data .*Copy it before"):
        batch_of(source, collate, 0, 1, 0)


def test_the_position_counts_over_all_steps_and_the_name_is_said() -> None:
    class Named(list[Any]):
        def name(self, index: int) -> str:
            return f"file:{index}"

    source = IndexedSource(Named(np.ones(3) for _ in range(20)), BATCHES, 0)
    with pytest.raises(UsageError, match=r"position 12 of the data, file:\d+,"):
        batch_of(source, halved, 0, 3, 0)


@pytest.mark.parametrize("collate", [halved, popped, written])
def test_collate_may_change_what_is_made_anew(collate: Callable[[list[Any]], Any]) -> None:
    make = dict(KEPT)[collate]

    class Fresh:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> Any:
            return make(index)

    batch, samples = batch_of(IndexedSource(Fresh(), BATCHES, 0), collate, 0, 1, 0)
    assert batch is not None and samples == 2


def test_a_stream_s_samples_are_kept_for_the_step() -> None:
    source = StreamSource(lambda: ({"label": i} for i in range(50)), BATCHES, 0)
    with pytest.raises(UsageError, match="position 0 of the data"):
        batch_of(source, popped, 0, 1, 0)


def test_the_list_of_samples_may_be_changed() -> None:
    def collate(samples: list[Any]) -> Any:
        samples.reverse()
        samples.append(samples[0])
        return stack(samples)

    source = IndexedSource([np.full(3, i) for i in range(20)], BATCHES, 0)
    assert len(batch_of(source, collate, 0, 1, 0)[0]) == 3


def test_only_few_grains_are_looked_at() -> None:
    data = [np.ones(3) for _ in range(40)]
    for step, grain in [(1, 1), (4, 0)]:
        batch_of(IndexedSource(data, BATCHES, 0), halved, 0, step, grain)


def test_data_that_differ_each_time_are_not_collate_s_fault() -> None:
    count = iter(range(100))
    given = GivenSamples(found := [np.zeros(2)])
    found[0] += 1
    assert given.changed(lambda: [np.full(2, next(count))]) is None


class Dataset:
    def __init__(self, get: Callable[[Any], Any]) -> None:
        self._kept, self._get = np.arange(40.0).reshape(20, 2), get

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> Any:
        return self._get(self._kept[index])


def scaled(row: Any) -> Any:
    row -= 1
    return row


@pytest.mark.parametrize("get", [scaled, lambda row: (scaled(row), 1)], ids=["array", "pair"])
def test_a_dataset_that_scales_what_it_keeps_is_refused(get: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match=r"data= changes a sample where it keeps it.* a copy"):
        IndexedSource(Dataset(get), BATCHES, 0).prove_unchanged()


def test_a_dataset_that_gives_one_array_for_all_is_refused() -> None:
    buffer = np.zeros(2)

    def get(row: Any) -> Any:
        buffer[:] = row
        return buffer

    with pytest.raises(UsageError, match="the same array for each"):
        IndexedSource(Dataset(get), BATCHES, 0).prove_unchanged()


OTHERS: dict[str, Callable[[Any], Any]] = {
    "kept": lambda row: row,
    "new": lambda row: row / 2,
    "drawn": lambda row: np.random.rand(),
}


@pytest.mark.parametrize("get", OTHERS.values(), ids=OTHERS)
def test_other_datasets_are_believed(get: Callable[[Any], Any]) -> None:
    IndexedSource(Dataset(get), BATCHES, 0).prove_unchanged()


def test_a_stream_that_changes_what_is_kept_is_told_so() -> None:
    codes = functools.lru_cache(lambda n: np.full(2, n))

    def stream() -> Iterator[Any]:
        for n in range(1, 20):
            yield scaled(codes(n))

    source = StreamSource(stream, BATCHES, 0)
    with pytest.raises(UsageError, match=r"changes sample 0 of its first call.*lru_cache"):
        source.prove_fresh()
