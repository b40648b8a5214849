"""Gradients of scripts with a group of their own; test_plain.py sums over real ranks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elasticd
from elasticd.errors import UsageError
from elasticd.train import averaging
from elasticd.train.averaging import added, averaged, buckets
from tests.unit.train.quiet import share_a_stream

WAIT_SECONDS = 20


class Together:
    """Ranks that are threads, of which one runs at a time."""

    def __init__(self, size: int) -> None:
        self.size, self.exchanges = size, 0
        self._changed = threading.Condition()
        self._given: dict[int, dict[int, Any]] = {}

    def run(self, script: Callable[[Rank], Any]) -> list[Any]:
        """What each rank has returned, or raised."""
        results: list[Any] = [None] * self.size

        def run(rank: int) -> None:
            with self._changed:
                share_a_stream()
                try:
                    results[rank] = script(Rank(self, rank))
                except Exception as error:
                    results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def exchange(self, rank: int, number: int, given: Any) -> list[Any]:
        deposits = self._given.setdefault(number, {})
        deposits[rank] = given
        self.exchanges = len(self._given)
        self._changed.notify_all()
        if not self._changed.wait_for(lambda: len(deposits) == self.size, WAIT_SECONDS):
            raise TimeoutError("a rank waits without end")
        return [deposits[each] for each in range(self.size)]


class Rank:
    def __init__(self, together: Together, rank: int) -> None:
        self.rank, self._together, self._exchanges = rank, together, 0

    def _exchange(self, given: Any) -> list[Any]:
        self._exchanges += 1
        return self._together.exchange(self.rank, self._exchanges, given)

    def gather(self, words: list[int]) -> Sequence[list[int]]:
        told = self._exchange(words)
        assert len({len(each) for each in told}) == 1, "a ring gathers arrays of one shape"
        return told

    def add(self, vector: mx.array) -> mx.array:
        mx.eval(vector)
        first: mx.array
        first, *others = self._exchange(vector)
        assert {(v.shape, v.dtype) for v in others} <= {(first.shape, first.dtype)}
        for other in others:
            first = first + other
        return first

    def average(self, grads: Any, weight: float = 1.0) -> Any:
        return averaged(grads, averaging._floats("average_gradients", grads), weight, self)

    def sum(self, grads: Any) -> Any:
        return added(grads, averaging._flat("all_reduce_grads", grads), self)


def test_a_gpu_that_fails_late_adds_nothing() -> None:
    """The evaluation of a gradient has returned; the wait says that it failed."""

    def fails() -> None:
        raise RuntimeError("[METAL] Command buffer execution failed: Internal Error")

    def script(rank: Rank) -> None:
        helper = averaging._flat if rank.rank else averaging._floats
        added(BASE, helper("all_reduce_grads", BASE, fails), rank)

    ranks = Together(2)
    for error in ranks.run(script):
        assert isinstance(error, RuntimeError) and "METAL" in str(error)
    assert ranks.exchanges == 0


class Pair(NamedTuple):
    one: Any
    other: Any


def test_one_rank_keeps_its_own() -> None:
    grads = {"w": mx.ones(3), "layers": [mx.zeros(2)]}
    assert elasticd.average_gradients(grads, weight=5) is grads
    assert elasticd.all_reduce_grads(grads) is grads


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none(weight: float) -> None:
    with pytest.raises(UsageError, match="weight= must be a finite number from 0"):
        elasticd.average_gradients({}, weight=weight)


BASE = {"a": mx.ones(3), "b": mx.zeros((2, 2))}
mx.eval(BASE)


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ({"a": mx.ones(3)}, "rank 1 has nothing more, ranks 0, 2 have b (float32, 2x2)"),
        ({"a": mx.ones(4), "b": mx.zeros((2, 2))}, "rank 1 has a (float32, 4), ranks 0, 2 have a"),
        ({"a": mx.ones(3), "c": mx.zeros((2, 2))}, "rank 1 has c (float32, 2x2), ranks 0, 2 have"),
        (BASE | {"a": mx.ones(3, mx.float16)}, "rank 1 has a (float16, 3), ranks 0, 2 have a (flo"),
        ({}, "rank 1 has nothing more, ranks 0, 2 have a (float32, 3)"),
    ],
)
@pytest.mark.parametrize("does", [Rank.average, Rank.sum])
def test_a_rank_with_other_gradients_is_told_on_all(does: Any, odd: Any, says: str) -> None:
    mx.eval(odd)

    def script(rank: Rank) -> None:
        does(rank, BASE)
        does(rank, odd if rank.rank == 1 else BASE)  # one alone goes another way, later

    for error in Together(3).run(script):
        assert isinstance(error, UsageError) and says in str(error)


def test_ranks_in_different_helpers_are_told() -> None:
    def script(rank: Rank) -> None:
        (rank.sum if rank.rank else rank.average)(BASE)

    for error in Together(3).run(script):
        assert isinstance(error, UsageError)
        assert "rank 0 called average_gradients, ranks 1, 2 called all_reduce_grads" in str(error)


@pytest.mark.parametrize("weight", [-1.0, math.nan])
def test_one_rank_s_weight_that_is_none_is_told_on_all(weight: float) -> None:
    def script(rank: Rank) -> None:
        rank.average(BASE, weight if rank.rank == 2 else 1.0)

    for error in Together(3).run(script):
        assert isinstance(error, UsageError) and f"not {weight} (rank 2's)" in str(error)


def test_the_same_gradients_cost_one_message_more() -> None:
    ranks = Together(2)
    ranks.run(lambda rank: rank.average(BASE))
    assert ranks.exchanges == 2


def test_the_order_in_which_a_tree_was_built_does_not_count() -> None:
    def script(rank: Rank) -> Any:
        found = rank.sum(BASE if rank.rank else dict(reversed(BASE.items())))
        return {name: array.tolist() for name, array in found.items()}

    assert Together(2).run(script) == [{"a": [2.0] * 3, "b": [[0.0] * 2] * 2}] * 2


def test_what_float32_does_not_hold_is_summed_all_the_same() -> None:
    many, large = mx.array([2**24 + 1, -1], mx.int32), np.array([2**63], np.uint64)

    def script(rank: Rank) -> Any:
        turned = mx.array((1 + 2j) * (rank.rank + 1))
        sums = rank.sum({"i": many, "c": turned, "u": mx.array(large + np.uint64(rank.rank))})
        mean = rank.average({"c": turned})["c"]
        assert sums["c"].dtype == mean.dtype == mx.complex64
        return [sums["i"].tolist(), sums["c"].item(), mean.item(), sums["u"].tolist()]

    assert Together(2).run(script) == [[[2**25 + 2, -2], 3 + 6j, 1.5 + 3j, [1]]] * 2


def test_a_tree_keeps_its_kinds() -> None:
    def script(rank: Rank) -> None:
        assert rank.average({}) == {} and rank.sum([]) == []
        tree = (mx.ones(1), [mx.ones(2), {}], Pair(mx.ones(1), {"x": mx.array(2.0)}))
        found = rank.sum(tree)
        assert type(found) is tuple and type(found[1]) is list and found[1][1] == {}
        assert type(found[2]) is Pair and found[2].other["x"].item() == 4.0

    assert Together(2).run(script) == [None, None]


def test_what_can_not_be_summed_is_named() -> None:
    with pytest.raises(UsageError, match=r"gradient of a\.b must be an array, not a NoneType"):
        elasticd.all_reduce_grads({"a": {"b": None}})
    with pytest.raises(UsageError, match=r"steps \(int32\) can't have a mean of its dtype"):
        elasticd.average_gradients({"steps": mx.array(3)})
    with pytest.raises(UsageError, match="weight= must be a finite number from 0, not a str"):
        elasticd.average_gradients({}, weight="one")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"group= must be a group of mx.distributed, not a int"):
        elasticd.all_reduce_grads({}, group=5)  # type: ignore[arg-type]


def test_others_hear_of_what_one_rank_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        def __init__(self, rank: Rank) -> None:
            self.rank = rank

        def size(self) -> int:
            return 2

    monkeypatch.setattr(averaging, "gathering", lambda group: group.rank.gather)
    monkeypatch.setattr("elasticd.train.agreement.gathering", lambda group: group.rank.gather)

    def script(rank: Rank) -> None:
        group: Any = Group(rank)
        elasticd.all_reduce_grads({"a": None if rank.rank else mx.ones(1)}, group=group)

    other, own = Together(2).run(script)
    assert "rank 1 called one with what it does not take" in str(other)
    assert "the gradient of a must be an array" in str(own)


@given(st.lists(st.integers(0, 50)), st.integers(1, 60))
def test_buckets_are_full_and_none_is_left_out(sizes: list[int], most: int) -> None:
    found = list(buckets(sizes, most))
    assert [at for start, end in found for at in range(start, end)] == list(range(len(sizes)))
    held = [sum(sizes[start:end]) for start, end in found]
    assert all(n <= most for n, (a, b) in zip(held, found, strict=True) if b - a > 1)
    for (start, end), (_, after) in pairwise(found):
        assert sum(sizes[start : end + 1]) > most and after > end, "the next one had no room"
