"""The recipe's own file of losses, beside what a report makes of it."""

from __future__ import annotations

import io
import json
import math

from elasticd.cli.reports.losses import curve
from elasticd.recipes.losses import LOSSES, LossLog


def test_a_report_draws_what_a_recipe_has_written() -> None:
    file = io.StringIO()
    log = LossLog(file, 3)
    log.take(1, loss=2.5, learning_rate=1e-5)
    log.take(2, loss=math.nan, learning_rate=1e-5, margin=0.1)
    log.take(3, 2.25, loss=2.0, learning_rate=0.0)
    assert [json.loads(line) for line in file.getvalue().splitlines()] == [
        {"step": 1, "loss": 2.5, "learning_rate": 1e-5},
        {"step": 2, "learning_rate": 1e-5, "margin": 0.1},
        {"step": 3, "loss": 2.0, "learning_rate": 0.0, "validation_loss": 2.25},
    ]
    drawn = curve(LOSSES, file.getvalue())
    assert drawn is not None and drawn.points == ((1, 2.5), (3, 2.0))


def test_a_long_job_has_no_long_file() -> None:
    file = io.StringIO()
    log = LossLog(file, 200_000)
    for step in range(1, 200_001):
        log.take(step, 3.0 if step == 7 else None, loss=1.0)
    steps = [json.loads(line)["step"] for line in file.getvalue().splitlines()]
    assert steps == [7, *range(10, 200_001, 10)]
