from __future__ import annotations

import pytest

from elasticd.preflight.firstshares import relative_seconds
from elasticd.types import NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


@pytest.mark.parametrize(
    ("gflops", "seconds"),
    [
        ({A: 100.0, B: 300.0}, {A: 3.0, B: 1.0}),
        ({A: 300.0, B: 250.0, C: 100.0}, {A: 1.0, B: 1.0, C: 3.0}),
        ({A: 300.0, B: 0.0, C: 100.0}, {A: 1.0, C: 3.0}),
        ({A: 300.0, B: 290.0}, {}),
        ({A: 300.0, B: 0.0}, {}),
        ({}, {}),
    ],
)
def test_who_is_slower_takes_longer(
    gflops: dict[NodeId, float], seconds: dict[NodeId, float]
) -> None:
    assert relative_seconds(gflops) == seconds
