"""Private arrays that a first forward pass makes are part of the state."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.errors import UsageError
from tests.unit.train.cohort import Cohort, Result, spec

DATA = np.random.default_rng(4).normal(size=(24, 4)).astype(np.float32)


class Anchored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self._anchor: Any = None

    def __call__(self, x: mx.array) -> mx.array:
        if self._anchor is None:
            self._anchor = mx.stop_gradient(self.linear.weight) * 0.5
        result: mx.array = self.linear(x) + x @ self._anchor.T
        return result


class Growing(Anchored):
    """Its private array is another in each pass."""

    def __call__(self, x: mx.array) -> mx.array:
        result = super().__call__(x)
        assert self._anchor is not None
        self._anchor = self._anchor + 1
        return result


class Public(Anchored):
    def __call__(self, x: mx.array) -> mx.array:
        self.anchor = self.linear.weight * 1
        return super().__call__(x)


def loss(model: Any, x: mx.array) -> mx.array:
    return mx.abs(model(x) - 1).mean()


def script(kind: type[Anchored], low: bool) -> str:
    mx.random.seed(1)
    model: Any = nn.Sequential(kind(), nn.Tanh(), Anchored())
    optimizer = optim.Adam(1e-2)
    run = elasticd.Run(model=model, optimizer=optimizer, loss=None if low else loss, data=DATA)
    if not low:
        for _ in run:
            pass
        return run.digest()
    loss_and_grad: Any = nn.value_and_grad(model, loss)
    for step in run.steps():
        for batch in step.micro_batches():
            step.accumulate(*loss_and_grad(model, batch))
        step.apply()
    return run.digest()


def made(kind: type[Anchored], low: bool, seed: int, names: str) -> list[str]:
    dice = random.Random(seed)
    cohort = Cohort(spec(train__steps=6), lambda seat: script(kind, low), dice)
    if len(names) > 1:
        cohort.kills, cohort.respawn = {n: dice.randrange(2, 80) for n in "ab"}, True
        cohort.delivers, cohort.keeps_updates = dice.random() < 0.5, dice.random() < 0.5
    results = cohort.run(list(names))
    return [_value(result) for result in results.values() if not _died(result)]


def _died(result: Result) -> bool:
    return type(result.error).__name__ == "Killed"


def _value(result: Result) -> str:
    if result.error is not None:
        raise result.error
    return str(result.value)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("low", [False, True], ids=["high", "low"])
def test_deaths_change_no_bit(low: bool, seed: int) -> None:
    (alone,) = made(Anchored, low, 0, "a")
    assert set(made(Anchored, low, seed, "abc")) == {alone}


def test_what_every_pass_changes_is_refused_by_name_or_summed() -> None:
    with pytest.raises(UsageError, match=r"layers\.0\._anchor"):
        made(Growing, False, 0, "a")


def test_an_array_that_is_no_private_one_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"layers\.0\.anchor come or go"):
        made(Public, False, 0, "a")
