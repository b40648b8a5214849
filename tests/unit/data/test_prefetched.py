"""Samples by position that threads fetch before they are wanted."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from elasticd import data
from elasticd.data import JsonLines, PrefetchedRows, prefetched
from elasticd.errors import UsageError
from elasticd.train.steps.data import IndexedSource
from elasticd.train.steps.sampling import Batches, ComingGrains

SEED = 5


class Rows:
    """Counts who asks for what, and can be held up."""

    def __init__(self, count: int = 40, make: Callable[[int], Any] = lambda i: i * i) -> None:
        self._count, self._make = count, make
        self.asked: Counter[int] = Counter()
        self.asked_by_threads: Counter[int] = Counter()
        self.open = threading.Event()
        self.open.set()
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        with self._lock:
            self.asked[index] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if threading.current_thread() is not threading.main_thread():
                self.asked_by_threads[index] += 1
                self.open.wait()
            return self._make(index)
        finally:
            with self._lock:
                self.at_once -= 1

    def name(self, index: int) -> str:
        return f"row {index}"


def ready(rows: PrefetchedRows, *indices: int) -> None:
    """Returns when threads have fetched these."""
    desk = rows._desk
    with desk._changed:
        assert desk._changed.wait_for(lambda: desk._ready.keys() >= {*indices}, timeout=60)


def grains(step: int, mine: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return ((each, grain) for each in range(1, step + 1) for grain in mine)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("items", [1, 4, 64])
def test_the_samples_are_those_of_the_dataset_whatever_the_world_is(
    items: int, threads: int
) -> None:
    """Shares move, a step is computed again, and grains are halved; at the end each was asked for
    once, where nothing of that happened."""
    batches, halved = Batches(12, 3), Batches(12, 2)
    plain = IndexedSource(Rows(), batches, SEED)
    rows = Rows()
    source = IndexedSource(prefetched(rows, items=items, threads=threads), batches, SEED)
    story = [*grains(3, (1, 2)), *grains(6, (0, 1, 2, 3)), (6, 3), (6, 1), *grains(9, (3,))]
    for step, grain in story:
        assert source.samples(step, grain) == plain.samples(step, grain)
    for each in (plain, source):
        each.cut(halved)
    for step, grain in grains(4, (4, 5)):
        assert source.samples(step, grain) == plain.samples(step, grain)
    assert rows.most_at_once <= 1 or threads > 1


def test_what_a_rank_needs_next_is_fetched_while_it_computes() -> None:
    batches, rows = Batches(8, 2), Rows(400)
    dataset = prefetched(rows, items=6)
    source, mine = IndexedSource(dataset, batches, SEED), (1, 3)
    told = [source.samples(step, grain) for step, grain in grains(2, mine)]
    assert all(told)
    wanted = [IndexedSource(Rows(400), batches, SEED).samples(3, grain) for grain in mine]
    before = {round(sample**0.5) for each in wanted for sample in each}
    ready(dataset, *before)
    rows.asked.clear()
    assert [source.samples(3, grain) for grain in mine] == wanted
    assert len(before) == 4 and len(rows.asked.keys() & before) <= 2  # to compare them


def test_no_more_is_held_than_is_said() -> None:
    rows = Rows(make=lambda i: np.zeros(1000, np.uint8))
    dataset = prefetched(rows, items=64, bytes=3000)
    assert len(dataset[0]) == 1000
    dataset.will_need(range(1, 20))
    ready(dataset, 1, 2, 3)
    desk = dataset._desk
    assert len(dataset[9]) == 1000  # it isn't held, and none of the threads waits for room with it
    for index in range(1, 9):
        ready(dataset, index)
        assert desk._bytes <= 3000 + 1100 and len(dataset[index]) == 1000


def test_what_is_not_needed_any_more_goes() -> None:
    dataset = prefetched(Rows())
    assert dataset[0] == 0
    dataset.will_need(range(1, 5))
    ready(dataset, 1, 2, 3, 4)
    dataset.will_need([3, 7])
    ready(dataset, 3, 7)
    assert dataset._desk._ready.keys() == {3, 7}


def test_a_sample_that_a_thread_has_in_hand_is_waited_for() -> None:
    rows = Rows()
    dataset = prefetched(rows)
    assert dataset[0] == 0
    rows.open.clear()
    dataset.will_need([5])
    while not rows.asked[5]:
        assert not rows.open.wait(0.001)
    threading.Timer(0.05, rows.open.set).start()
    assert dataset[5] == 25 and rows.asked_by_threads[5] == 1


def test_an_error_comes_at_its_sample_and_nowhere_else() -> None:
    def make(index: int) -> int:
        if index == 3:
            raise ValueError("row 3 is broken")
        return index

    dataset = prefetched(Rows(make=make))
    assert dataset[0] == 0
    dataset.will_need(range(1, 6))
    ready(dataset, *range(1, 6))
    assert [dataset[1], dataset[2], dataset[4], dataset[5]] == [1, 2, 4, 5]
    with pytest.raises(ValueError, match="row 3 is broken"):
        dataset[3]


OWN = random.Random(4)
DRAWS = {"python": random.random, "numpy": np.random.rand, "own": OWN.random}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_dataset_that_draws_is_refused(draw: Callable[[], Any]) -> None:
    with pytest.raises(UsageError, match="random numbers"):
        prefetched(Rows(make=lambda i: draw()))[0]


@pytest.mark.parametrize("size", [2, 8, 62, 124])
def test_a_dataset_that_reads_what_the_body_changes_is_refused_in_the_next_steps(size: int) -> None:
    """Only what was fetched before the body of step 40 ran differs."""
    level, seen = [1], 0
    dataset = prefetched(Rows(9000, make=lambda i: i * level[0]))
    with pytest.raises(UsageError, match="something that has changed since"):
        for index in range(45 * size + 64):
            dataset.will_need(range(index, index + 64))
            if index == 40 * size:
                ready(dataset, *range(index, index + 64))
                level[0] = 2
            seen = dataset[index] and index
    assert 40 * size <= seen + 1 <= 40 * size + 64


def test_few_samples_are_fetched_twice_to_compare_them() -> None:
    rows = Rows(400)
    dataset = prefetched(rows)
    assert dataset[0] == 0
    for index in range(1, 1 + 1 + 3 + 7 + 15 + 31 + 31):
        dataset.will_need(range(index, index + 64))
        ready(dataset, index)
        assert dataset[index] == index * index
    again = [index for index, times in rows.asked.items() if times > 1]
    assert again == [1, 4, 11, 26, 57, 88]


def test_a_dataset_that_has_one_place_for_all_samples_is_refused() -> None:
    place = np.zeros(1)

    def make(index: int) -> Any:
        place[:] = index
        return place

    dataset = prefetched(Rows(make=make))
    assert dataset[0] == 0
    dataset.will_need([1, 2])
    ready(dataset, 1, 2)
    with pytest.raises(UsageError, match="another sample 1 "):
        dataset[1]


def test_a_dataset_that_draws_for_a_later_sample_is_refused() -> None:
    dataset = prefetched(Rows(make=lambda i: random.random() if i else 0))
    assert dataset[0] == 0
    dataset.will_need([1])
    ready(dataset, 1)
    with pytest.raises(UsageError, match="random numbers"):
        dataset[1]


def test_a_dataset_may_make_a_generator_for_each_sample() -> None:
    rows = Rows(make=lambda i: np.random.default_rng(i).random())
    assert prefetched(rows)[3] == rows[3]


def test_arrays_of_mlx_are_refused_where_they_come() -> None:
    with pytest.raises(UsageError, match="NumPy's"):
        prefetched(Rows(make=lambda i: (mx.zeros(2), i)))[0]
    dataset = prefetched(Rows(make=lambda i: mx.zeros(2) if i == 2 else i))
    assert dataset[0] == 0
    dataset.will_need([1, 2])
    ready(dataset, 1, 2)
    assert dataset[1] == 1
    with pytest.raises(UsageError, match="NumPy's"):
        dataset[2]


def test_names_and_digests_are_those_of_the_dataset() -> None:
    assert prefetched(Rows()).name(3) == "row 3"
    assert prefetched([1]).name(0) == "" and prefetched(Rows()).digests_by_file() == {}
    assert IndexedSource(prefetched(Rows()), Batches(4, 2), SEED).describe() == "40 samples"


def test_what_lies_in_memory_is_compared_between_nodes_as_without_it() -> None:
    one = [np.arange(n) for n in range(9)]
    other = [*one[:3], np.arange(3) + 1, *one[4:]]
    told = [IndexedSource(rows, Batches(4, 2), SEED).digests() for rows in (one, other)]
    ahead = [
        IndexedSource(prefetched(rows), Batches(4, 2), SEED).digests() for rows in (one, other)
    ]
    assert ahead == told
    assert [name for name in told[0] if told[0][name] != told[1][name]] == ["sample 3"]


def test_its_threads_end_with_it() -> None:
    dataset = prefetched(Rows(), threads=2)
    assert dataset[0] == 0
    before = {*threading.enumerate()}
    dataset.will_need([1, 2])
    ready(dataset, 1, 2)
    own = {*threading.enumerate()} - before
    assert len(own) == 2
    del dataset
    gc.collect()
    for thread in own:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"items": 0}, "items"),
        ({"bytes": True}, "bytes"),
        ({"threads": 1.5}, "threads"),
    ],
)
def test_wrong_numbers_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prefetched([1], **wrong)


def test_a_stream_is_refused_with_the_way() -> None:
    stream = data.SampleStream(lambda: iter(()))  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match=r"stream\.prefetch\(\)"):
        prefetched(stream)


def test_rows_of_files_have_their_digests(tmp_path: Any) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    rows = JsonLines(tmp_path / "a.jsonl")
    assert prefetched(rows).digests_by_file() == rows.digests_by_file()
    assert prefetched(rows)[1] == {"n": 2}


def test_the_grains_that_come_are_those_of_the_step_before() -> None:
    grains_to_come = ComingGrains()
    assert list(grains_to_come.after(1, 2)) == [] and list(grains_to_come.after(1, 5)) == []
    coming = grains_to_come.after(2, 2)
    assert [next(coming) for _ in range(4)] == [(2, 5), (3, 2), (3, 5), (4, 2)]
    assert list(grains_to_come.after(2, 3)) == []  # not one of its grains: nothing is known
    assert next(grains_to_come.after(2, 5)) == (3, 2)
