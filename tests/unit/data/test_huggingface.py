"""What can be said of the adapter without ``datasets``, and then with it, where it is installed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from elasticd.data import SampleStream, from_datasets
from elasticd.errors import UsageError
from elasticd.train.steps.data import StreamSource
from elasticd.train.steps.sampling import Batches

BATCHES = Batches(6, 2)


class Hub:
    """A data set as theirs is: its place is in itself, and another iterator moves it."""

    def __init__(self, count: int) -> None:
        self.count, self.epoch, self.at, self.start = count, 0, 0, 0

    def __iter__(self) -> Iterator[dict[str, int]]:
        self.at = self.start
        while self.at < self.count:
            self.at += 1
            yield {"n": (self.at - 1 + self.epoch) % self.count}

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["at"]

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


WAYS: dict[str, Callable[[SampleStream], SampleStream]] = {
    "as it is": lambda stream: stream,
    "shuffled": lambda stream: stream.shuffle(8, seed=3),
    "ahead": lambda stream: stream.shuffle(4).prefetch(5),
}


def goes_on_alike(stream: SampleStream) -> list[Any]:
    """Whoever joins at any step; what a rank that reads all gets in three epochs of 25 rows."""
    whole = StreamSource(stream, BATCHES, 0)
    expected = [whole.samples(step, grain) for step in range(1, 13) for grain in range(3)]
    leading = StreamSource(stream, BATCHES, 0)
    for step in range(1, 12):
        leading.samples(step, 1)
        joining = StreamSource(stream, BATCHES, 0)
        joining.load_state(json.loads(json.dumps(leading.state(step))))
        assert [joining.samples(step + 1, g) for g in range(3)] == expected[3 * step : 3 * step + 3]
    return [row["n"] for grain in expected for row in grain]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_data_set_that_keeps_its_place_goes_on_elsewhere(
    way: Callable[[SampleStream], SampleStream],
) -> None:
    numbers = goes_on_alike(way(from_datasets(Hub(25))))
    assert sorted(numbers[:25]) == sorted(numbers[25:50]) == list(range(25))
    assert numbers[:25] != numbers[25:50]  # they are told the epoch


def test_iterators_have_data_sets_of_their_own() -> None:
    stream = from_datasets(Hub(9))
    one, other = stream(), stream()
    next(one), next(one), next(other)
    assert one.state()["rows"]["at"] == 2 and other.state()["rows"]["at"] == 1
    assert one.name() == "row 2 of epoch 0"


def test_what_is_none() -> None:
    with pytest.raises(UsageError, match="a list has no state_dict"):
        from_datasets([1, 2])
    split = copy.copy(Hub(3))
    split._distributed = (0, 2)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="split by rank"):
        from_datasets(split)


def double(row: dict[str, int]) -> dict[str, int]:
    return {"n": row["n"], "twice": 2 * row["n"]}


def in_batches(rows: dict[str, list[int]]) -> dict[str, list[int]]:
    return {"n": rows["n"], "first": [rows["n"][0]] * len(rows["n"])}


@pytest.fixture
def hub() -> Any:
    """25 rows in 4 shards, by their own package."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    return datasets.Dataset.from_dict({"n": list(range(25))}).to_iterable_dataset(num_shards=4)


THEIRS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda rows: rows,
    "mapped": lambda rows: rows.map(double),
    "mapped in batches": lambda rows: rows.map(in_batches, batched=True, batch_size=4),
    "shards in another order": lambda rows: rows.shuffle(seed=7, buffer_size=1),
}


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_iterable_dataset_goes_on_elsewhere(
    hub: Any, theirs: Callable[[Any], Any], way: Callable[[SampleStream], SampleStream]
) -> None:
    numbers = goes_on_alike(way(from_datasets(theirs(hub))))
    assert sorted(numbers[:25]) == sorted(numbers[25:50]) == list(range(25))


def test_their_shuffle_by_a_buffer_is_refused(hub: Any) -> None:
    with pytest.raises(UsageError, match="loses and repeats rows"):
        from_datasets(hub.shuffle(seed=1, buffer_size=10).map(double))


def test_their_split_is_refused(hub: Any) -> None:
    distributed = pytest.importorskip("datasets.distributed")
    with pytest.raises(UsageError, match="split by rank"):
        from_datasets(distributed.split_dataset_by_node(hub, rank=0, world_size=2))
