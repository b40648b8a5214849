"""Who waits for the GPU, and when. The library for Linux has none: its side is a fake."""

from __future__ import annotations

import inspect
from typing import Any

import mlx.core as mx
import pytest

from elasticd.train import averaging, sameness
from elasticd.train.link.background import Background
from elasticd.train.settling import settled
from elasticd.train.steps.summing import Summing

LATE = "[METAL] Command buffer execution failed: Internal Error (0000000e:kIOGPUCommandBuffer)"


@pytest.mark.parametrize("there", [True, False])
def test_the_gpu_is_waited_for_wherever_there_is_one(there: bool) -> None:
    """Also by a script that computes on the CPU by default, as all do here."""
    assert mx.default_device() == mx.cpu
    waited: list[Any] = []
    settled(lambda: there, waited.append)
    assert waited == ([mx.gpu] if there else [])


def test_what_failed_there_is_raised() -> None:
    def fails(device: Any) -> None:
        raise RuntimeError(LATE)

    with pytest.raises(RuntimeError, match="METAL"):
        settled(lambda: True, fails)


@pytest.mark.parametrize(
    "lets_out", [Summing, Background, averaging._flat, averaging._floats, sameness.rows_of]
)
def test_whoever_lets_something_out_waits(lets_out: Any) -> None:
    """Their own tests have them wait for a fake."""
    assert inspect.signature(lets_out).parameters["settle"].default is settled


def test_without_one_nothing_is_asked() -> None:
    settled()
