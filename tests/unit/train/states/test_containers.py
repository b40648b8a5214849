"""An optimizer's state is put back whole, or not at all."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

from elasticd.errors import MismatchError
from elasticd.train.states.containers import put_state


def first_of(parts: int, rate: float, *, inner: int = 0) -> tuple[Any, Any]:
    """A MultiOptimizer of so many, the last of which is one of ``inner``; and its first part."""
    joined: list[Any] = [optim.Adam(rate), *(optim.SGD(rate, momentum=0.9) for _ in range(parts))]
    if inner:
        joined[-1] = first_of(inner, rate)[0]
    made = optim.MultiOptimizer(joined, [lambda path, _: path == "bias"] * parts)
    made.init(nn.Linear(2, 2).trainable_parameters())
    return made, joined[0]


@pytest.mark.parametrize(
    ("saved", "says"),
    [
        (first_of(2, 0.5)[0].state, "a MultiOptimizer of 2 is here, .* of a MultiOptimizer of 3"),
        (first_of(1, 0.5, inner=2)[0].state, "of 2 is here, .* of a MultiOptimizer of 3"),
        (optim.Adam(0.5).state, "a MultiOptimizer of 2 is here, .* that of another optimizer"),
        ([], "another optimizer"),
    ],
)
def test_a_state_of_other_parts_is_refused_before_any_is_put(saved: Any, says: str) -> None:
    optimizer, first = first_of(1, 0.25, inner=1)
    before = [optimizer.state["states"][0], first.learning_rate]
    with pytest.raises(MismatchError, match=says):
        put_state(optimizer, saved)
    assert before[0] is first.state and first.learning_rate.item() == 0.25
    other, _ = first_of(1, 0.5, inner=1)
    put_state(optimizer, other.state)
    assert before[0] is first.state and mx.array_equal(first.learning_rate, mx.array(0.5))
