"""What a script gives to ``run.log`` is shown with its step, and bounded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.train.steps.named import NamedValues
from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED
from tests.unit.train import models
from tests.unit.train.cohort import Cohort, spec


def test_what_was_given_in_steps_that_are_gone_is_gone() -> None:
    named = NamedValues()
    named.take(8, {"accuracy": 0.5, "rate": 1.0})
    named.take(9, {"rate": 2.0})
    named.take(7, {"accuracy": 0.4})
    assert named.last == {"accuracy": (7, 0.4)}


def test_the_first_names_count_and_that_of_the_best_checkpoint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named = NamedValues("best")
    for step in (1, 2):
        named.take(step, {f"n{n}": float(step) for n in range(40)})
        named.take(step, {"best": float(step), "x" * (MOST_NAME_LETTERS + 1): 1.0})
    assert list(named.last) == [*(f"n{n}" for n in range(MOST_NAMED)), "best"]
    assert named.of("best") == 2.0 and named.last["n0"] == (2, 2.0)
    assert capsys.readouterr().err.count("run.log: 'n32' is not shown") == 1


@pytest.mark.parametrize("high", [True, False])
def test_a_value_belongs_to_the_step_of_its_body(tmp_path: Path, high: bool) -> None:
    told: Any = {"text": "x"}

    def script(seat: Any) -> list[tuple[int, dict[str, float]]]:
        model, optimizer = nn.Linear(4, 3), optim.SGD(1e-2)
        loss = models.loss
        run = elasticd.Run(model=model, optimizer=optimizer, loss=loss, data=models.samples())
        if high:
            for step in run:
                run.log(number=step.number, **told)
        else:
            loss_and_grad: Any = nn.value_and_grad(model, loss)
            for step in run.steps():
                run.log(number=step.number, **told)
                for batch in step.micro_batches():
                    step.accumulate(*loss_and_grad(model, batch))
                step.apply()
        logged: list[tuple[int, dict[str, float]]] = seat.logged
        return logged

    made = Cohort(spec(train__steps=4), script, random.Random(1))
    made.outputs = tmp_path
    for result in made.run(list("ab")).values():
        assert result.error is None
        assert result.value == [(step, {"number": float(step)}) for step in range(1, 5)]
