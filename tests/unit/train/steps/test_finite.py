"""What is not finite in the sums of a step, and what is blamed for it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.errors import GenerationLost
from elasticd.train.steps.finite import skips


@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (8.0, "nan"),
        (math.nan, "nan, as the sum of its weights is nan"),
        (math.inf, "nan, as the sum of its weights is inf"),
    ],
)
def test_a_weight_that_is_not_finite_is_blamed_itself(weight: float, says: str) -> None:
    said: list[str] = []
    policy = SimpleNamespace(on_nan="stop")
    seat: Any = SimpleNamespace(
        spec=SimpleNamespace(recovery=policy),
        refuse=said.append,
        not_finite=lambda step, loss, policy: said.append(f"{step} {loss} {policy}"),
    )
    with pytest.raises(GenerationLost):
        skips(seat, 3, math.nan, weight)
    policy.on_nan = "skip"
    assert skips(seat, 3, math.nan, weight)
    assert said == [f'the loss of step 3 is {says} (recovery.on_nan = "stop")', f"3 {says} skip"]
