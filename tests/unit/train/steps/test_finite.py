"""What is not finite in the sums of a step, and what is blamed for it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.errors import GenerationLost
from elasticd.train.states.updates import Reduced
from elasticd.train.steps.finite import skips


@pytest.mark.parametrize(
    ("loss", "weight", "wrong", "says"),
    [
        (math.nan, 8.0, "w", "nan"),
        (math.nan, math.nan, "", "nan, as the sum of its weights is nan"),
        (math.nan, math.inf, "", "nan, as the sum of its weights is inf"),
        (0.5, 8.0, "layers.0.w", "0.5, and the gradient of layers.0.w is not finite"),
    ],
)
def test_what_is_not_finite_is_blamed_itself(
    loss: float, weight: float, wrong: str, says: str
) -> None:
    said: list[str] = []
    policy = SimpleNamespace(on_nan="stop")
    seat: Any = SimpleNamespace(
        spec=SimpleNamespace(recovery=policy),
        refuse=said.append,
        not_finite=lambda step, loss, policy: said.append(f"{step} {loss} {policy}"),
    )
    reduced = Reduced(loss, weight, {}, {}, {}, wrong)
    with pytest.raises(GenerationLost):
        skips(seat, 3, reduced)
    policy.on_nan = "skip"
    assert skips(seat, 3, reduced)
    assert said == [f'the loss of step 3 is {says} (recovery.on_nan = "stop")', f"3 {says} skip"]


def test_what_is_finite_is_not_skipped() -> None:
    seat: Any = SimpleNamespace()
    assert not skips(seat, 3, Reduced(0.5, 8.0, {}, {}, {}))
