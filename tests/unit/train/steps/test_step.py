"""What a step tells the script after it is applied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from elasticd.train.steps.data import stack
from elasticd.train.steps.layout import Reduced
from elasticd.train.steps.runner import StepRunner
from elasticd.train.steps.step import Step


class FakeRunner:
    """A runner of whose step others computed every grain; ``stays``: what apply says."""

    finished = False
    step = 26

    def __init__(self, stays: bool) -> None:
        self._stays = stays

    def grain_numbers(self) -> Iterator[int]:
        return iter(())

    def reduce(self) -> Reduced:
        return Reduced(loss=2.0, weight=16.0, metrics={}, state={}, gradients={})

    def apply(self, reduced: Reduced, optimizer: Any, gradients: Any) -> bool:
        return self._stays


@pytest.mark.parametrize("stays", [True, False])
def test_a_step_whose_state_was_replaced_meanwhile_is_late(stays: bool) -> None:
    # Else the body after step 26 would run with the state of, say, step 44.
    step = Step(cast(StepRunner, FakeRunner(stays)), cast(Any, None), stack, object())
    for _ in step.micro_batches():
        raise AssertionError("nothing is to be computed here")
    assert not step.late
    step.apply()
    assert step.late is not stays
    assert step.loss == 2.0
