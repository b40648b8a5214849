"""A compiled loss sees what the loop's body changes, and is traced no oftener than it has to be."""

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
from elasticd.errors import UsageError
from elasticd.train.steps import compiled, recompute
from tests.unit.train.cohort import Cohort, spec

DATA = np.random.default_rng(4).normal(size=(32, 6)).astype(np.float32)
CHANGED_AT = 3
TRACES: dict[int, int] = {}
"""By a block's id. What a trace changes in the block itself is undone."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.drop = nn.Linear(6, 6), nn.Dropout(0.5)
        self.scale = 1.0
        TRACES[id(self)] = 0

    @property
    def traces(self) -> int:
        return TRACES[id(self)]

    def __call__(self, x: mx.array) -> mx.array:
        TRACES[id(self)] += 1
        return x + self.scale * self.drop(self.linear(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = [Block(), Block()]

    def __call__(self, x: mx.array) -> mx.array:
        for block in self.blocks:
            x = block(x)
        return x


def loss(model: Any, x: mx.array) -> mx.array:
    return mx.square(model(x) - 1).mean()


def freeze(model: Model) -> None:
    model.blocks[0].freeze()


def rescale(model: Model) -> None:
    model.blocks[1].scale = 0.0


def drop_less(model: Model) -> None:
    model.blocks[0].drop = nn.Dropout(0.0)


CHANGES: dict[str, Callable[[Model], None]] = {
    "freeze": freeze,
    "rescale": rescale,
    "drop less": drop_less,
}


def script(change: Callable[[Model], None], seat: Any = None, compile: bool = True) -> Any:
    mx.random.seed(1)
    model = Model()
    run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA, compile=compile)
    losses, weights = [], []
    for step in run:
        losses.append(step.loss)
        weights.append(np.array(model.blocks[0].linear.weight))
        if step.number == CHANGED_AT:
            change(model)
    return model, losses, weights, run.digest()


def alone(change: Callable[[Model], None], compile: bool = True) -> Any:
    cohort = Cohort(
        spec(train__steps=8), lambda seat: script(change, seat, compile), random.Random(0)
    )
    (result,) = cohort.run(["a"]).values()
    if result.error is not None:
        raise result.error
    return result.value


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_body_changes_counts_from_the_next_step_on(name: str) -> None:
    model, losses, weights, _ = alone(CHANGES[name])
    _, eager, *_ = alone(CHANGES[name], compile=False)
    _, unchanged, *_ = alone(lambda model: None)
    assert losses == pytest.approx(eager, rel=1e-4)
    assert losses[:CHANGED_AT] == unchanged[:CHANGED_AT]
    assert losses[CHANGED_AT + 1 :] != unchanged[CHANGED_AT + 1 :]
    if name == "freeze":
        assert np.array_equal(weights[CHANGED_AT], weights[-1])
    # Before the change and behind it, each for the two shapes of a batch.
    assert model.blocks[1].traces == 4


@pytest.mark.parametrize("seed", range(4))
def test_deaths_change_no_bit(seed: int) -> None:
    change = CHANGES[sorted(CHANGES)[seed % len(CHANGES)]]
    *_, digest = alone(change)
    dice = random.Random(seed)
    cohort = Cohort(spec(train__steps=8), lambda seat: script(change, seat), dice)
    cohort.kills = {"a": dice.randrange(10, 80), "b": dice.randrange(10, 80)}
    cohort.respawn = True
    lived = [r.value[3] for r in cohort.run(list("abc")).values() if r.error is None]
    assert len(lived) >= 2 and set(lived) == {digest}


def test_blocks_that_recompute_have_the_same_bits_in_a_trace() -> None:
    results = []
    for recomputes in (False, True):
        mx.random.seed(2)
        model = Model()
        if recomputes:
            assert recompute.switch_on(model) == 2
        compute = compiled.CompiledLoss(model, loss)
        mx.random.seed(3)
        value, gradients = compute(model, mx.array(DATA))
        results.append((value.item(), np.array(gradients["blocks"][0]["linear"]["weight"])))
    assert results[0][0] == results[1][0]
    assert np.array_equal(results[0][1], results[1][1])


def test_a_run_without_a_loss_has_nothing_to_compile() -> None:
    with pytest.raises(UsageError, match=r"compile=True compiles the loss"):
        elasticd.Run(model=Model(), optimizer=optim.SGD(0.1), data=DATA, compile=True)
