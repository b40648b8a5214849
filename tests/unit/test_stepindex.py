"""Which steps have written how much: against a list of records."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from elasticd.stepindex import BASE, LONGEST, Record, StepIndex

LARGE = 1 << 40


@pytest.mark.parametrize("seed", range(100))
def test_it_is_a_list_of_records(seed: int) -> None:
    dice = random.Random(seed)
    model: list[Record] = []
    index = StepIndex()
    for _ in range(dice.randrange(1, 40)):
        if dice.random() < 0.2 and model:
            step = dice.randrange(BASE - 1, model[-1][0] + 2)
            index.cut(step)
            model = [record for record in model if record[0] <= step]
        else:
            last, end = model[-1] if model else (BASE - 1, 0)
            step = last + (1 if dice.random() < 0.8 else dice.randrange(1, 400))
            length = dice.choice([0, 0, 0, 1, 50, 9000])
            index.take(step, length)
            model.append((step, end + length))
        assert list(index.records()) == model
        assert (index.steps, index.end) == (len(model), model[-1][1] if model else 0)
        assert StepIndex.of(model).code == index.code, "one way to write it"
        again = StepIndex.parsed(bytes(index.code), index.end)
        assert (again.code, again.runs(), again.end) == (index.code, index.runs(), index.end)


@pytest.mark.parametrize("seed", range(100))
def test_what_is_settled_stays(seed: int) -> None:
    dice, index = random.Random(seed), StepIndex()
    for step in range(BASE, dice.randrange(60)):
        index.take(step, dice.choice([0, 0, 7]))
    before = bytes(index.code[: index.settled])
    for step in range(index.last + 1, index.last + dice.randrange(300)):
        index.take(step, dice.choice([0, 0, 7]))
    assert bytes(index.code).startswith(before)


@pytest.mark.parametrize("seed", range(200))
def test_anything_is_taken_as_far_as_it_makes_sense(seed: int) -> None:
    dice = random.Random(seed)
    code = dice.randbytes(dice.randrange(60)) + b"\xff" * dice.choice([0, LONGEST, 20])
    index = StepIndex.parsed(code, size := dice.choice([0, 100, LARGE, (1 << 63) - 1]))
    assert code.startswith(bytes(index.code)) and index.end <= size
    assert index.last < 1 << 60
    runs = index.runs()
    assert all(first <= last for first, last in runs)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(runs))


def test_steps_without_text_cost_nothing() -> None:
    index = StepIndex()
    for step in range(BASE, 100_000):
        index.take(step, 30 if step % 10_000 == 0 else 0)
    assert len(index.code) < 50
