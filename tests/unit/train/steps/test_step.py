"""A step whose world ended before it was reduced here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal, cast

import mlx.core as mx

from elasticd.errors import GenerationLost
from elasticd.train.states.updates import Reduced
from elasticd.train.steps.data import stack
from elasticd.train.steps.runner import StepRunner
from elasticd.train.steps.step import Step


class FakeRunner:
    """A runner whose world ends when all is computed; ``instead``: what comes in its place."""

    step = 26

    def __init__(self, instead: Reduced | Literal["void"]) -> None:
        self._instead = instead
        self.applied = False

    def grain_numbers(self) -> Iterator[int]:
        return iter(())

    def reduce(self, *, as_they_are: bool) -> Reduced:
        raise GenerationLost("ended")

    def rejoin(self) -> Reduced | Literal["void"]:
        return self._instead

    def zero_gradients(self) -> Any:
        return {"weight": mx.zeros((2,))}

    def apply(self, reduced: Reduced, optimizer: Any, gradients: Any, clip: float | None) -> None:
        self.applied = True


def step_of(runner: FakeRunner) -> Step:
    source = SimpleNamespace(grains_end=lambda step: None)
    step = Step(cast(StepRunner, runner), cast(Any, source), stack, object())
    for _ in step.micro_batches():
        raise AssertionError("nothing is to be computed here")
    return step


def test_a_step_that_the_others_reduced_is_this_rank_s_too() -> None:
    reduced = Reduced(2.0, 16.0, {"hits": 0.5}, {}, {"weight": mx.ones((2,))})
    step = step_of(runner := FakeRunner(reduced))
    assert not step.late and step.loss == 2.0 and step.metrics == {"hits": 0.5}
    step.grads["weight"] *= 3
    assert reduced.gradients["weight"].tolist() == [1, 1], "others may need it as it was"
    step.apply()
    assert runner.applied and step.number == 26


def test_a_body_that_came_too_late_does_nothing() -> None:
    # Else it would go on with the state of, say, step 44.
    step = step_of(runner := FakeRunner("void"))
    assert step.late and math.isnan(step.loss) and step.metrics == {}
    step.grads = {"weight": step.grads["weight"] * 2}
    step.apply()
    assert step.applied and not runner.applied and step.number == 26
