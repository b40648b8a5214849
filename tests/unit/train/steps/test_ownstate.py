"""Variables of the script's own from which numbers are drawn, and which a successor hasn't got."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.train.steps import ownstate
from tests.unit.train.cohort import Cohort, spec

STEPS = 12
Loop = Callable[[elasticd.Run], None]


def said(loop: Loop, capsys: pytest.CaptureFixture[str], ranks: str = "a") -> list[str]:
    """What stands on stderr of a run whose loop is ``loop``."""

    def script(seat: Any) -> None:
        model = nn.Linear(2, 1)
        data = [(mx.ones(2) * (n / 20), mx.ones(1)) for n in range(20)]
        loop(
            elasticd.Run(
                model=model,
                optimizer=optim.SGD(0.1),
                loss=lambda model, x, y: nn.losses.mse_loss(model(x), y),
                data=data,
            )
        )

    results = Cohort(spec(train__steps=STEPS), script, random.Random(0)).run(list(ranks))
    for result in results.values():
        if result.error is not None:
            raise result.error
    return capsys.readouterr().err.splitlines()


def splits(run: elasticd.Run) -> None:
    key = mx.random.key(7)
    for step in run:
        if step.number > 3:
            key, part = mx.random.split(key)
            assert part.shape == (2,)


def splits_last(run: elasticd.Run) -> None:
    key = mx.random.key(7)
    for _ in run:
        *_, key = mx.random.split(key, 3)


def splits_often(run: elasticd.Run) -> None:
    key = mx.random.key(7)
    for _ in run:
        for _ in range(5):
            key, _part = mx.random.split(key)


@pytest.mark.parametrize("loop", [splits, splits_last, splits_often])
def test_a_key_that_the_body_splits_is_named_once(
    loop: Loop, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = said(loop, capsys, "ab")
    assert line.startswith("elasticd: key: the loop's body splits this random key")
    assert "run.state.key, part = mx.random.split(run.state.key)" in line


class Noise:
    def __init__(self) -> None:
        self.key = mx.random.key(7)

    def draw(self) -> mx.array:
        self.key, part = mx.random.split(self.key)
        return part


def splits_an_attribute(run: elasticd.Run) -> None:
    noise = again = Noise()
    for _ in run:
        noise.draw()
        assert again is noise


def test_a_key_of_an_object_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = said(splits_an_attribute, capsys)
    assert line.startswith("elasticd: noise.key: ")
    assert "run.state.key, part = mx.random.split(run.state.key)" in line


def keeps_it(run: elasticd.Run) -> None:
    run.state.key = mx.random.key(7)
    for _ in run:
        run.state.key, _part = mx.random.split(run.state.key)


def makes_it_of_the_step(run: elasticd.Run) -> None:
    key, counts = mx.random.key(0), mx.array([0, 1], mx.uint32)
    for step in run:
        key, counts = mx.random.key(step.number), counts + 1
    assert key.size == counts.size


def splits_a_fixed_one(run: elasticd.Run) -> None:
    key = mx.random.key(7)
    for _ in run:
        _, part = mx.random.split(key)
        assert part.size == 2


def makes_one_in_each_body(run: elasticd.Run) -> None:
    for step in run:
        rng = np.random.default_rng(step.number)
        rng.random()


def has_one(run: elasticd.Run) -> None:
    rng, dice = np.random.default_rng(1), random.Random(2)
    run.state.dice = dice
    for _ in run:
        rng.random(), dice.random()


def test_a_key_that_bodies_make_anew_is_soon_looked_at_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked: list[bool] = []

    def comes_from(before: mx.array, now: mx.array) -> bool:
        looked.append(real(before, now))
        return looked[-1]

    real = ownstate._comes_from
    monkeypatch.setattr(ownstate, "_comes_from", comes_from)
    said(makes_it_of_the_step, capsys)
    assert ownstate.BODIES < STEPS and not any(looked)
    assert len(looked) == 2 * ownstate.BODIES, "of each of two variables that may be keys"


@pytest.mark.parametrize(
    "loop", [keeps_it, makes_it_of_the_step, splits_a_fixed_one, makes_one_in_each_body, has_one]
)
def test_what_a_successor_has_is_not_named(loop: Loop, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(loop, capsys) == []


def makes_one_and_keeps_it(run: elasticd.Run) -> None:
    rng = None
    for step in run:
        if step.number == 2:
            rng = np.random.default_rng(1)
        if rng is not None:
            rng.random()


def test_a_generator_that_a_body_has_made_is_named_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (line,) = said(makes_one_and_keeps_it, capsys)
    assert line.startswith("elasticd: rng: ") and "make it above Run(…)" in line


def through(steps: Any) -> Iterator[Any]:
    """As a progress bar does."""
    yield from steps


def under_a_bar(run: elasticd.Run) -> None:
    key = mx.random.key(7)
    for _ in through(run):
        key, _part = mx.random.split(key)


def test_a_loop_over_something_around_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(under_a_bar, capsys)) == 1
