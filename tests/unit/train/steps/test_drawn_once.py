"""What a loss draws at its first pass, and keeps, is told of: who joins later draws another."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.train.steps.probe import GrainProbe
from tests.unit.train.cohort import Cohort, spec

DATA = [np.float32(i % 5) * np.ones(4, np.float32) for i in range(24)]
SAID = "the loss drew random numbers at its first pass"


def keeps(draw: Callable[[], Any]) -> Callable[..., mx.array]:
    kept: dict[str, mx.array] = {}

    def loss(model: Any, x: mx.array) -> mx.array:
        if "projection" not in kept:
            kept["projection"] = mx.array(draw())
        return mx.square(model(x) @ kept["projection"]).mean()

    return loss


def draws_each_time(model: Any, x: mx.array) -> mx.array:
    noise = mx.random.normal(x.shape) + float(np.random.rand())
    return mx.square(model(x + noise)).mean()


class Sine(nn.Module):
    """Its frequencies are part of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self._scale: Any = None

    def __call__(self, x: mx.array) -> mx.array:
        if self._scale is None:
            self._scale = mx.random.normal((4,))
        return mx.sin(self.layer(x * self._scale))


LOSSES: dict[str, tuple[Callable[..., mx.array], bool]] = {
    "mlx": (keeps(partial(mx.random.normal, (3, 2))), True),
    "numpy": (keeps(lambda: np.random.rand(3, 2).astype(np.float32)), True),
    "python": (keeps(lambda: [[random.random()]] * 3), True),
    "not drawn": (keeps(partial(mx.ones, (3, 2))), False),
    "each time": (draws_each_time, False),
}


def said(model: Callable[[], Any], loss: Any, capsys: pytest.CaptureFixture[str]) -> int:
    def script(seat: Any) -> list[int]:
        run = elasticd.Run(model=model(), optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        return [step.number for step in run]

    for result in Cohort(spec(train__steps=3), script, random.Random(0)).run(["a", "b"]).values():
        assert result.value == [1, 2, 3], result.error
    return capsys.readouterr().err.count(SAID)


@pytest.mark.parametrize(("loss", "told"), LOSSES.values(), ids=LOSSES)
def test_what_is_drawn_once_is_told_of_once(
    loss: Any, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(lambda: nn.Linear(4, 3), loss, capsys) == told


def test_not_what_a_module_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(Sine, lambda model, x: mx.square(model(x)).mean(), capsys) == 0


def test_a_pass_of_another_state_is_not_the_same_pass() -> None:
    probe = GrainProbe()
    mx.random.seed(1)
    probe.passed()
    probe.restart()
    mx.random.seed(2)
    probe.passed()
    assert not probe.named_draws()
