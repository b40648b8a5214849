"""What leaves a trainer has no failure of its GPU behind it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import pytest

from elasticd.train.steps.accumulate import GrainSums
from elasticd.train.steps.summing import Summing

LATE = "[METAL] Command buffer execution failed: Internal Error (0000000e:kIOGPUCommandBuffer)"


@pytest.mark.parametrize("size", [1, 2])
def test_a_gpu_that_fails_late_sends_nothing(size: int) -> None:
    sums = GrainSums(1)
    sums.aim([(0, 1)])
    sums.add(0, [mx.zeros(2)])  # its evaluation has returned
    sent: list[Any] = []
    seat = SimpleNamespace(reduce=lambda *told: sent.append(told))
    grains = SimpleNamespace(sums=sums, count=1)
    world = SimpleNamespace(
        size=size, reduction="exact", shares_of=lambda step: (((0, 1),), ())[:size]
    )
    layout = SimpleNamespace(size=2, split=lambda flat: [flat])

    def fails() -> None:
        raise RuntimeError(LATE)

    def summing(*settle: Any) -> Summing:
        return Summing(cast(Any, seat), cast(Any, grains), *settle)

    with pytest.raises(RuntimeError, match="METAL"):
        summing(fails).total(cast(Any, world), cast(Any, layout), 1)
    assert sent == []
    summing().total(cast(Any, world), cast(Any, layout), 1)
    assert len(sent) == size - 1
