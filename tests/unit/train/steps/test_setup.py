"""A buffer that the first pass sets up, and no later one would: main's log says so."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from tests.unit.train.cohort import Cohort, spec

DATA = [np.float32(5 + i % 5) * np.ones(4, np.float32) for i in range(24)]


class Whitens(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.mean, self.how = mx.zeros(4), how
        self.ready: Any = None if how == "none" else False
        self._ready = False
        self.freeze(keys=["mean"], recurse=False)

    def __call__(self, x: mx.array) -> mx.array:
        done = self._ready if self.how == "private" else self.ready
        if not done or self.how == "always":
            self.mean = x.mean(axis=0)
            if self.how == "private":
                self._ready = True
            elif self.how != "always":
                self.ready = True
        return self.layer(x - self.mean)


def loss(model: Any, x: mx.array) -> mx.array:
    return mx.square(model(x)).mean()


def test_what_a_pass_replaces_besides_may_be_of_numpy() -> None:
    class Counts(Whitens):
        def __init__(self) -> None:
            super().__init__("flag")
            self.table = np.zeros(3)

        def __call__(self, x: mx.array) -> mx.array:
            self.table = self.table + 1
            return super().__call__(x)

    def script(seat: Any) -> list[int]:
        run = elasticd.Run(model=Counts(), optimizer=optim.SGD(0.01), loss=loss, data=DATA)
        return [step.number for step in run]

    (result,) = Cohort(spec(train__steps=3), script, random.Random(0)).run(["a"]).values()
    assert result.value == [1, 2, 3], result.error


@pytest.mark.parametrize(
    ("how", "named"),
    [("flag", ".ready"), ("none", ".ready"), ("private", "._ready"), ("always", "")],
)
def test_what_only_the_first_pass_sets_up_is_named(
    how: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def script(seat: Any) -> list[int]:
        run = elasticd.Run(model=Whitens(how), optimizer=optim.SGD(0.01), loss=loss, data=DATA)
        return [step.number for step in run]

    (result,) = Cohort(spec(train__steps=3), script, random.Random(0)).run(["a"]).values()
    assert result.value == [1, 2, 3], result.error
    said = [line for line in capsys.readouterr().err.splitlines() if "first forward pass" in line]
    assert len(said) == bool(named)
    assert all(f"assigns the model's mean and changes model{named}." in line for line in said)
