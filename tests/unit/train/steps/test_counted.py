"""Numbers of a script's own that its loss or ``collate`` changes are named, if they are read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from tests.unit.train.cohort import Cohort, spec

DATA = [np.float32(i % 5) * np.ones(4, np.float32) for i in range(24)]
calls, only_counted, factor = 0, 0, 1


def plain(model: Any, x: mx.array) -> mx.array:
    return mx.abs(model(x)).mean()


def reads_a_global(model: Any, x: mx.array) -> mx.array:
    global calls
    calls += 1
    return plain(model, x) * (1 + calls // 20)


def counts_in_a_global(model: Any, x: mx.array) -> mx.array:
    global only_counted
    only_counted += 1
    return plain(model, x) * factor


def closure() -> Callable[..., mx.array]:
    made = 0

    def reads_a_variable(model: Any, x: mx.array) -> mx.array:
        nonlocal made
        made = made + 1
        return plain(model, x) * (2 if made > 20 else 1)

    return reads_a_variable


class Collates:
    def __init__(self) -> None:
        self.batches, self.rows, self.size = 0, 0, 1.0

    def __call__(self, rows: list[Any]) -> mx.array:
        self.batches += 1
        self.rows += len(rows)
        return mx.array(np.stack(rows)) * (1.1 if self.batches > 20 else self.size)


class Counts(nn.Module):
    """Whose forward pass counts itself, and reads that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.passes, self.seen, self._length = 0, 0, 0

    def __call__(self, x: mx.array) -> mx.array:
        self.passes += 1
        self.seen += 1
        if self._length < x.shape[1]:
            self._length = x.shape[1] + self._length
        return self.layer(x) * (1.1 if self.passes > 20 else 1.0)


def counted_model(model: Any, x: mx.array) -> mx.array:
    return plain(model, x)


@pytest.mark.parametrize(
    ("loss", "collate", "named"),
    [
        (plain, None, []),
        (counted_model, None, ["Counts.passes"]),
        (reads_a_global, None, ["calls"]),
        (counts_in_a_global, None, []),
        (closure(), None, ["made"]),
        (plain, Collates(), ["Collates.batches"]),
    ],
)
def test_what_is_counted_and_read_is_named_once(
    loss: Any, collate: Any, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def script(seat: Any) -> list[int]:
        model = Counts() if loss is counted_model else nn.Linear(4, 3)
        run = elasticd.Run(
            model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA, collate=collate
        )
        return [step.number for step in run]

    (result,) = Cohort(spec(train__steps=3), script, random.Random(0)).run(["a"]).values()
    assert result.value == [1, 2, 3], result.error
    said = [line for line in capsys.readouterr().err.splitlines() if "changes this number" in line]
    assert [line.split(":")[1].strip() for line in said] == named
