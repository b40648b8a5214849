"""A learning rate for another global batch."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.optimizers as optim
import pytest

import elasticd
from elasticd.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs"
scaled = elasticd.scaled_learning_rate


def test_the_rules() -> None:
    assert scaled(0.1, 64, 256) == 0.4
    assert scaled(0.1, 64, 256, "sqrt") == 0.2
    assert scaled(0.1, 256, 64, rule="linear") == 0.025
    assert scaled(0.1, 96, 96) == scaled(0.1, 96, 96, "sqrt") == 0.1


def test_a_schedule_is_multiplied() -> None:
    schedule = scaled(optim.cosine_decay(0.1, 100), 64, 256)
    assert schedule(mx.array(0)).item() == pytest.approx(0.4)
    assert schedule(mx.array(50)).item() == pytest.approx(0.2)


def test_a_schedule_that_goes_by_samples() -> None:
    plain = optim.cosine_decay(0.1, 100)
    schedule = scaled(plain, 64, 256, "sqrt", same_samples=True)
    for step in (0, 5, 25, 60):
        expected = 2 * plain(mx.array(4 * step)).item()
        assert schedule(mx.array(step)).item() == pytest.approx(expected, abs=1e-9)


def test_an_optimizer_takes_it() -> None:
    schedule = scaled(optim.step_decay(0.1, 0.5, 4), 32, 64, same_samples=True)
    optimizer = optim.SGD(schedule)
    rates = []
    for _ in range(5):
        optimizer.apply_gradients({"w": mx.ones(1)}, {"w": mx.ones(1)})
        rates.append(optimizer.learning_rate.item())
    assert rates == pytest.approx([0.2, 0.2, 0.1, 0.1, 0.05])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((0.1, 0, 8), "base_batch must be an integer from 1, not 0"),
        ((0.1, 8, 1.5), r"batch must be an integer from 1, not 1\.5"),
        ((0.1, 8, True), "batch must be an integer from 1, not True"),
        ((0.1, 8, 8, "cubic"), 'rule must be "linear" or "sqrt", not \'cubic\''),
        ((math.nan, 8, 8), "must be a finite number from 0, or a schedule, not nan"),
        ((-1, 8, 32), "must be a finite number from 0, or a schedule, not -1"),
        (("0.1", 8, 8), "or a schedule, not '0.1'"),
    ],
)
def test_what_makes_no_sense(words: tuple[Any, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        scaled(*words)


def test_the_example_of_the_docs() -> None:
    text = (DOCS / "writing-jobs.md").read_text()
    text = text[text.index("## Another global batch") :]
    (example, *_) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["rate"] == pytest.approx(6e-4)
    assert names["schedule"](mx.array(0)).item() == pytest.approx(6e-4)
    assert names["schedule"](mx.array(250)).item() == pytest.approx(0, abs=1e-9)
