"""Recomputed activations: the same bits, dropout and batch statistics included."""

from __future__ import annotations

import random
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from elasticd.train.states.trees import arrays, same_bits
from elasticd.train.steps import randomness
from elasticd.train.steps.recompute import switch_off, switch_on
from elasticd.train.steps.relief import TrainerRelief, begin, trim

CALLS: list[int] = []
OWN = np.random.default_rng(4)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm(8)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
        self.drop = nn.Dropout(0.4)

    def __call__(self, x: mx.array, scale: float = 1.0) -> mx.array:
        CALLS.append(1)
        return x + scale * self.drop(self.down(mx.maximum(self.up(self.norm(x)), 0.0)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.blocks = [Block(), Block(), Block()]
        self.last = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))

    def __call__(self, x: mx.array) -> mx.array:
        x = self.first(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        result: mx.array = self.last(x)
        return result


def trained(recompute: bool) -> dict[str, mx.array]:
    mx.random.seed(5)
    model = Net()
    if recompute:
        assert switch_on(model) == 3
        assert all(type(block).__name__ == "Block" for block in model.blocks)
        assert all(isinstance(block, Block) for block in model.blocks)
    grad = nn.value_and_grad(model, lambda m, x: mx.square(m(x)).mean())
    gradients: Any = None
    for number in range(3):
        mx.random.seed(number)
        loss, gradients = grad(model, mx.random.normal((6, 4)))
        model.update({"first": {"weight": model.first.weight - 0.1 * gradients["first"]["weight"]}})
        mx.eval(loss, gradients, model.state)
    key: Any = mx.random.state
    found = {"gradient/" + p: a for p, a in arrays(gradients).items()}
    return {**found, **arrays(model.state), "key": mx.array(key[0])}


def test_the_same_bits() -> None:
    plain, once = trained(False), len(CALLS)
    recomputed = trained(True)
    assert len(CALLS) == 3 * once
    assert plain.keys() == recomputed.keys()
    for name, array in plain.items():
        assert same_bits(array, recomputed[name]), name


class Skipped(Block):
    """Draws from every generator that a script may have."""

    def __call__(self, x: mx.array, scale: float = 1.0) -> mx.array:
        gain = random.random() + np.random.rand() + OWN.random()
        if random.random() < 0.5:
            return x * gain
        return super().__call__(x, scale * gain)


def test_the_second_pass_draws_the_same_numbers_of_all_generators() -> None:
    found = []
    randomness.own().adopt([OWN])
    try:
        for switch in (switch_off, switch_on):
            mx.random.seed(3)
            model, x = Net(), mx.random.normal((6, 4))
            model.blocks = [Skipped() for _ in range(4)]
            switch(model)
            randomness.seed_grain(1, 2, 3)
            grad = nn.value_and_grad(model, lambda m, x: mx.square(m(x)).mean())
            gradients: Any = grad(model, x)[1]["blocks"]
            mx.eval(gradients)
            found.append({**arrays(gradients), "next": mx.array(next_numbers())})
    finally:
        randomness.own().begin(list)
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        assert same_bits(array, found[1][name]), name


def next_numbers() -> list[float]:
    return [random.random(), np.random.rand(), OWN.random()]


def test_evaluation_is_as_before() -> None:
    model = Net()
    model.eval()
    x = mx.ones((2, 4))
    before = model(x)
    switch_on(model)
    assert same_bits(before, model(x))


def test_a_model_keeps_its_activations_again_when_relief_is_given_back() -> None:
    model = Net()
    usual = mx.set_cache_limit(12345678)
    try:
        relief = TrainerRelief(model)
        for level in (2, 3, 0, 2, 0):
            relief.apply(level)
            names = [block.__call__.__name__ for block in model.blocks]
            assert names == ["recomputed" if level else "__call__"] * 3
            assert (type(model.blocks[0]) is Block) == (level == 0)
            limit = mx.set_cache_limit(12345678)
            assert (limit < 100 << 20) and (limit == 12345678) == (level == 0)
            mx.set_cache_limit(limit)
    finally:
        mx.set_cache_limit(usual)
    assert switch_off(model) == 0


GIB = 1 << 30


def limit_now() -> int:
    """Of MLX's cache."""
    found = int(mx.set_cache_limit(0))
    mx.set_cache_limit(found)
    return found


@pytest.mark.parametrize(
    ("metal", "trainers", "waiting", "at_work"),
    [
        (True, 1, 64 << 20, 32 * GIB),
        (True, 4, 64 << 20, 8 * GIB),
        (True, 0, 64 << 20, 32 * GIB),  # they can't be counted
        (False, 1, 12345678, 12345678),
    ],
)
def test_a_spare_keeps_little_and_a_trainer_its_share(
    metal: bool, trainers: int, waiting: int, at_work: int
) -> None:
    usual = mx.set_cache_limit(12345678)
    try:
        begin(metal, 64 * GIB, lambda: trainers)
        assert limit_now() == waiting
        relief = TrainerRelief(Net())
        for level in (0, 0, 1, 0):
            relief.apply(level)
            assert limit_now() == (64 << 20 if level else at_work)
    finally:
        mx.set_cache_limit(usual)


def test_what_the_script_sets_itself_counts() -> None:
    usual = mx.set_cache_limit(12345678)
    try:
        begin(True, 64 * GIB, lambda: 1)
        mx.set_cache_limit(777777)
        TrainerRelief(Net()).apply(0)
        assert limit_now() == 777777
    finally:
        mx.set_cache_limit(usual)


def test_a_spare_that_gave_its_cache_back_has_little_in_a_world_too() -> None:
    usual = mx.set_cache_limit(12345678)
    try:
        begin(True, 64 * GIB, lambda: 1)
        trim()
        relief = TrainerRelief(Net())
        relief.apply(0)
        assert limit_now() == 64 << 20
        relief.apply(1)
        relief.apply(0)
        assert limit_now() == 32 * GIB
    finally:
        mx.set_cache_limit(usual)


def test_what_was_trimmed_before_is_given_back_too() -> None:
    """Memory was short, and then so short that the job gave up some: the first limit comes back."""
    usual = mx.set_cache_limit(12345678)
    try:
        relief = TrainerRelief(Net())
        trim()
        relief.apply(1)
        relief.apply(0)
        assert mx.set_cache_limit(usual) == 12345678
    finally:
        mx.set_cache_limit(usual)
