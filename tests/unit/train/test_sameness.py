"""Weights of ranks are compared by digests; test_plain.py does so over a real ring."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

import elasticd
from elasticd.errors import UsageError
from elasticd.train import sameness
from elasticd.train.sameness import difference, rows_of


def model_of(*widths: int) -> Any:
    mx.random.seed(1)
    return nn.Sequential(*[nn.Linear(3, width) for width in widths or (4, 5)])


class Threads:
    """Ranks that are threads, each with a model of its own."""

    def __init__(self, *models: Any) -> None:
        self._rows = [rows_of(model) for model in models]
        self._barrier = threading.Barrier(len(models), timeout=20)
        self._told: dict[int, list[int]] = {}
        self.gathered = 0

    def found(self) -> list[str]:
        said: dict[int, str] = {}

        def run(rank: int) -> None:
            said[rank] = difference(self._rows[rank], lambda words: self._gather(rank, words))

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(self._rows))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [said[rank] for rank in sorted(said)]

    def _gather(self, rank: int, words: list[int]) -> Sequence[list[int]]:
        self._told[rank] = words
        self._barrier.wait()
        told = [self._told[each] for each in sorted(self._told)]
        assert len({len(each) for each in told}) == 1, "a ring gathers arrays of one shape"
        if self._barrier.wait() == 0:
            self.gathered += 1
        return told


def test_the_same_weights_are_told_by_one_short_word() -> None:
    ranks = Threads(model_of(), model_of(), model_of())
    assert ranks.found() == ["", "", ""] and ranks.gathered == 1


def test_the_first_parameter_and_the_rank_are_named() -> None:
    models = [model_of() for _ in range(3)]
    models[2].layers[1].weight = models[2].layers[1].weight + 1e-6
    models[2].layers[1].bias = models[2].layers[1].bias.at[0].add(1.0)
    found = Threads(*models).found()
    assert found == [
        "layers.1.bias (float32, 5) is not the same: rank 2 differs from 0, 1;"
        " 1 parameter behind it differs, too"
    ] * 3  # fmt: skip


def test_one_bit_and_the_sign_of_zero_count() -> None:
    for change in (2.0**-40, -0.0):
        one, other = model_of(), model_of()
        one.layers[0].bias = mx.zeros(4)
        other.layers[0].bias = mx.array([0.0, 0.0, change, 0.0])
        assert "layers.0.bias" in Threads(one, other).found()[0]


def test_of_two_rank_0_is_taken_for_right() -> None:
    one, other = model_of(), model_of()
    other.layers[0].bias = mx.ones(4)
    assert "rank 1 differs from 0" in Threads(one, other).found()[1]


def test_several_ranks_that_differ() -> None:
    models = [model_of() for _ in range(5)]
    for rank in (0, 3):
        models[rank].layers[0].weight = mx.zeros((4, 3))
    assert "ranks 0, 3 differ from 1, 2, 4" in Threads(*models).found()[4]


@pytest.mark.parametrize("widths", [(4,), (4, 5, 6), (4, 7)])
def test_other_models_are_told_from_other_weights(widths: tuple[int, ...]) -> None:
    found = Threads(model_of(), model_of(*widths), model_of()).found()
    assert all("the models are not the same: rank 1 differs from 0, 2" in each for each in found)


def test_halves_and_what_does_not_lie_in_a_row() -> None:
    one, other = model_of(), model_of()
    for model in (one, other):
        model.layers[0].weight = model.layers[0].weight.astype(mx.bfloat16)
    one.layers[1].weight = mx.array(other.layers[1].weight.T).T
    assert Threads(one, other).found() == ["", ""]


def test_frozen_parameters_count() -> None:
    one, other = model_of(), model_of()
    for model in (one, other):
        model.freeze()
    other.layers[0].bias = mx.ones(4)
    assert "layers.0.bias" in Threads(one, other).found()[0]


def test_running_statistics_are_of_a_ranks_own_samples() -> None:
    models: list[Any] = [nn.Sequential(nn.BatchNorm(3), nn.BatchNorm(3)) for _ in range(2)]
    models[1](mx.array([[1.0, 2.0, 3.0], [5.0, 4.0, 0.0]]))
    assert models[1].layers[0].running_mean.tolist() != models[0].layers[0].running_mean.tolist()
    assert Threads(*models).found() == ["", ""]
    models[1].layers[1].bias = mx.ones(3)
    assert "layers.1.bias (float32, 3) is not the same" in Threads(*models).found()[0]


class Group:
    """Of two ranks, which counts who asks."""

    def __init__(self) -> None:
        self.asked = 0

    def size(self) -> int:
        self.asked += 1
        return 1


def test_it_looks_at_every_so_many_calls_of_each_model() -> None:
    group: Any = Group()
    one, other = model_of(), model_of()
    for _ in range(7):
        elasticd.check_weights(one, every=3, group=group)
    assert group.asked == 2
    for _ in range(2):
        elasticd.check_weights(other, every=3, group=group)
    assert group.asked == 2


def test_a_model_that_is_gone_is_forgotten() -> None:
    group: Any = Group()
    before = len(sameness._calls)
    elasticd.check_weights(model_of(), group=group)
    gc.collect()
    assert len(sameness._calls) == before


def test_a_gpu_that_fails_late_is_no_difference() -> None:
    def fails() -> None:
        raise RuntimeError("[METAL] Command buffer execution failed: Internal Error")

    with pytest.raises(RuntimeError, match="METAL"):
        sameness.rows_of(model_of(), fails)


def test_one_rank_is_the_same() -> None:
    assert elasticd.check_weights(model_of()) is False


@pytest.mark.parametrize("every", [0, -1, 2.5, True])
def test_a_count_that_is_none(every: Any) -> None:
    with pytest.raises(UsageError, match="every= must be a whole number from 1"):
        elasticd.check_weights(model_of(), every=every)


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(UsageError, match=r"model= must be an mlx.nn.Module, not a dict"):
        elasticd.check_weights({"a": mx.ones(2)})  # type: ignore[arg-type]


def test_the_example_of_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs/plain.md").read_text()
    text = text[text.index("## The same weights everywhere") :]
    example = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {}
    exec(example[1], names)
    assert sameness._calls[id(names["model"])][1] == 1000
