"""What a script gives to ``run.log`` is shown with its step, and bounded."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.errors import UsageError
from elasticd.ipc.frames import encode
from elasticd.train.steps.named import BestFigure, GivenNumbers, NamedValues
from elasticd.train.steps.weighted import loss_of
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


def test_a_state_that_can_not_be_the_best_is_told_of_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("", "accuracy"):
        best = BestFigure(name)
        for step, value in ((0, None), (2, None), (4, 0.5), (6, math.nan), (8, math.nan), (9, 1.0)):
            best.stored(step, value, last=step == 9)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("elasticd: checkpoint.keep_best: 'accuracy' is nan at step 6.")
    best = BestFigure("acuracy")
    for step in (0, 5, 9):
        best.stored(step, None, last=step == 9)
    BestFigure("loss").stored(0, None, last=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert "'acuracy' was never given to run.log" in line


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


@pytest.mark.parametrize(
    "value",
    [
        3, 3.0, np.float32(3), np.int64(3), np.array(3), np.array([3.0]), np.longdouble(3),
        mx.array(3), mx.array([3.0]), mx.array(3, mx.bfloat16), Fraction(3), Decimal(3),
    ],
)  # fmt: skip
def test_whatever_is_one_number_is_shown(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = GivenNumbers().of({"x": value})
    assert found == {"x": 3.0} and type(found["x"]) is float and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "value",
    [None, [1.0], {}, 1j, 10**400, np.ones(2), np.ones(0), mx.ones(2), mx.array(1j), object()],
)
def test_what_is_no_number_ends_no_job_and_is_said_once(
    value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    given = GivenNumbers()
    for _ in range(3):
        assert given.of({"odd": value, "even": 2, "text": "x"}) == {"even": 2.0}
    said = f"run.log: 'odd' is not shown: its {type(value).__name__} is no number that fits"
    assert capsys.readouterr().err == f"elasticd: {said}\n"


@pytest.mark.filterwarnings("ignore:.*masked element")
def test_what_is_masked_is_no_nought() -> None:
    found = GivenNumbers().of({"masked": np.ma.masked, "text": b"3"})
    assert math.isnan(found.pop("masked")) and found == {}


def test_complaints_are_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    given = GivenNumbers()
    for n in range(1000):
        given.of({f"{n}": None, "": 1.0})
    said = capsys.readouterr().err
    assert said.count("\n") == MOST_NAMED and "'' is not shown: it has no name" in said


def test_any_text_of_a_script_can_be_told(tmp_path: Path) -> None:
    """Half a character is in the name of a file that isn't UTF-8, as Python has it."""
    half: Any = {"\udc80": 1.0}

    def script(seat: Any) -> Any:
        model, optimizer = nn.Linear(4, 3), optim.SGD(1e-2)
        run = elasticd.Run(
            model=model, optimizer=optimizer, loss=models.loss, data=models.samples()
        )
        for step in run:
            run.log(**half)
            if step.number == 2:
                run.stop("no more of \udc80")
        encode({"values": dict(seat.logged[-1][1])})
        return seat.logged[-1]

    made = Cohort(spec(train__steps=4), script, random.Random(1))
    made.outputs = tmp_path
    for result in made.run(list("ab")).values():
        assert result.error is None
        assert result.value == (2, {"\\udc80": 1.0})
    with pytest.raises(UsageError, match=r"metric .* is no valid Unicode"):
        loss_of(elasticd.Weighted(1.0, 1, metrics=half), 1, None, None)
