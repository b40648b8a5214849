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
        (8.0, "the loss of step 3 is nan"),
        (math.nan, "the sum of the weights of step 3 is nan"),
        (math.inf, "the sum of the weights of step 3 is inf"),
    ],
)
def test_a_weight_that_is_not_finite_is_blamed_itself(weight: float, says: str) -> None:
    refused: list[str] = []
    spec = SimpleNamespace(recovery=SimpleNamespace(on_nan="stop"))
    seat: Any = SimpleNamespace(spec=spec, refuse=refused.append)
    with pytest.raises(GenerationLost):
        skips(seat, 3, math.nan, weight)
    assert refused == [f'{says} (recovery.on_nan = "stop")']
