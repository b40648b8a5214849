from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

from elasticd.errors import UsageError
from elasticd.train.steps.data import IndexedSource, StreamSource, source_of, stack
from elasticd.train.steps.likeness import sample_digest
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


def test_batches_in_place_of_samples_are_told_of() -> None:
    with pytest.raises(UsageError, match="give their rows: batches are made of them here"):
        stack([(np.zeros((4, 2)), np.zeros(4)), (np.zeros((3, 2)), np.zeros(3))])


def test_a_list_of_unlike_parts_is_told_to_be_a_tuple() -> None:
    with pytest.raises(UsageError, match=r"A list is taken for one array: make .* a tuple"):
        stack([[np.zeros(2), 1, 0.5]] * 2)


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


class Kept:
    """A dataset that makes a sample when it is first asked for it."""

    def __init__(self, make: Callable[[int], Any], *, keeps: bool = True, length: int = 20) -> None:
        self._make, self._keeps, self._length = make, keeps, length
        self._made: dict[int, Any] = {}
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        if not self._keeps:
            return self._make(index)
        if index not in self._made:
            self._made[index] = self._make(index)
        return self._made[index]


def begun(dataset: Kept) -> IndexedSource:
    """As a run does it."""
    source = IndexedSource(dataset, BATCHES, 0)
    source.samples(1, 0)
    dataset.asked.clear()
    source.prove_redrawn()
    return source


def seeded(index: int) -> Any:
    np.random.seed(index)
    return np.random.randn(3)


DRAWN: dict[str, Callable[[int], Any]] = {
    "python": lambda i: random.random(),
    "numpy": lambda i: np.random.randn(8),
    "mlx": lambda i: mx.random.normal((2,)),
}


@pytest.mark.parametrize("make", DRAWN.values(), ids=DRAWN)
def test_a_dataset_that_keeps_what_it_drew_is_refused(make: Callable[[int], Any]) -> None:
    with pytest.raises(UsageError, match=r"keeps what it made.*default_rng\(index\)"):
        begun(Kept(make))
    assert len(begun(Kept(make, keeps=False)).samples(1, 0)) == 2


@pytest.mark.parametrize("make", [seeded, lambda i: np.random.default_rng(i).random()])
def test_a_dataset_may_keep_what_goes_by_the_index(make: Callable[[int], Any]) -> None:
    again = begun(Kept(make)).samples(4, 2)
    assert sample_digest(again) == sample_digest(begun(Kept(make, keeps=False)).samples(4, 2))


def test_a_dataset_may_draw_once_for_all_samples() -> None:
    table = Kept(lambda _: np.random.randn(20))
    assert begun(Kept(lambda i: table[0][i], keeps=False)).describe() == "20 samples"


def test_one_sample_is_fetched_to_see_that_nothing_drawn_is_kept() -> None:
    dataset = Kept(lambda i: i)
    begun(dataset)
    assert len(dataset.asked) == 1


def test_a_dataset_of_a_grain_is_as_it_is() -> None:
    assert begun(Kept(lambda i: random.random(), length=3)).describe() == "3 samples"


def test_a_tuple_of_samples_is_a_dataset_and_one_of_columns_is_none() -> None:
    data: Any
    rows = BATCHES.global_size
    few, many = (np.zeros((rows - 1, 2)),) * 2, (np.zeros((rows, 2)),) * rows
    for data in (few, many, (np.zeros(rows),) * 2):
        assert source_of(data, BATCHES, 0)
    for data in ((np.zeros((rows, 2)),) * 2, (mx.zeros((rows, 2, 3)),) * (rows - 1)):
        with pytest.raises(UsageError, match=r"a tuple of columns; it needs samples"):
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


class Epochs(Counter):
    """Each epoch has an order of its own, which its state doesn't say."""

    def __init__(self) -> None:
        super().__init__(7)
        self._epoch = 0

    def __next__(self) -> int:
        return 10 * self._epoch + super().__next__()

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_a_stream_of_epochs_is_continued_in_its_epoch(step: int) -> None:
    one, other = (StreamSource(Epochs, BATCHES, 0) for _ in range(2))
    one.samples(step, 1)
    other.load_state(json.loads(json.dumps(one.state(step))))
    for later in (step + 1, step + 2):
        assert other.samples(later, 1) == one.samples(later, 1)


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


@pytest.mark.parametrize("length", [1, 3, 100])
def test_a_factory_that_begins_anew_is_believed(length: int) -> None:
    calls: list[int] = []

    def factory() -> Iterator[Any]:
        calls.append(1)
        order = list(range(length))
        random.shuffle(order)
        yield from ({"a": np.arange(n), "b": (mx.array(n), [str(n)])} for n in order)

    source = StreamSource(factory, BATCHES, 0)
    source.prove_fresh()
    if length == 100:
        assert len(calls) == 2, "it may be expensive"
        source.samples(1, 0)
        source.samples(1, 2)
        assert len(calls) == 2, "what was read is not read again"


def rewound() -> Any:
    """A reader that is rewound instead of made anew."""

    class Reader:
        at = -1

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.at += 1
            return self.at % 100

    reader = Reader()

    def factory() -> Iterator[int]:
        reader.at = -1
        return reader

    return factory


def shared() -> Any:
    rows = iter(range(1000))
    return lambda: (row for row in rows)


def spent() -> Any:
    rows = iter(range(BATCHES.micro))
    return lambda: (row for row in rows)


def unseeded() -> Any:
    return lambda: iter(np.random.default_rng().normal(size=100))


def one_iterator() -> Any:
    rows = iter(range(1000))
    return lambda: rows


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (one_iterator, "returned the same iterator"),
        (rewound, "returned the same iterator"),
        (shared, "sample 0 of its second call is another"),
        (spent, "its second call gave nothing"),
        (unseeded, "sample 0 of its second call is another"),
    ],
)
def test_a_factory_that_does_not_begin_anew_is_told_how(make: Any, says: str) -> None:
    source = StreamSource(make(), BATCHES, 0)
    with pytest.raises(UsageError, match=says) as raised:
        source.prove_fresh()
    assert "yield" in str(raised.value), "the cure"


def test_a_rewound_reader_may_be_wrapped() -> None:
    factory = rewound()

    def stream() -> Iterator[int]:
        yield from factory()

    source = StreamSource(stream, BATCHES, 0)
    source.prove_fresh()
    for step, grain in [(1, 0), (2, 1), (1, 1), (5, 2)]:
        assert source.samples(step, grain) == expected(100, step, grain)


def test_samples_that_differ_have_other_digests() -> None:
    alike = [
        {"a": [1, 2.5, None, True], "b": (np.arange(3), mx.array([0.5]), "x", b"y")},
        {"a": [1, 2.5, None, True], "b": (np.arange(3), mx.array([0.5]), "x", b"y")},
    ]
    assert sample_digest(alike[0]) == sample_digest(alike[1])
    assert sample_digest({"b", "a"}) == sample_digest({"a", "b"})
    others = [0, 1, True, "1", 1.0, -0.0, 0.0, None, [], (), [1], [[1]], {1: 2}, {2: 1}, b"1",
              np.float32(1), np.arange(2), np.arange(2.0), mx.arange(2), mx.array(1)]  # fmt: skip
    assert len({sample_digest(other) for other in others}) == len(others)


def test_an_empty_stream_is_an_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        StreamSource(lambda: iter(()), BATCHES, 0).samples(1, 0)
