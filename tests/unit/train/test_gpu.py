"""Whether there is a GPU. The library for Linux has none: a Mac's side is a fake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

import elasticd
from elasticd.train.gpu import has_gpu
from elasticd.train.steps.relief import gpu_info

NONE_THERE = "[metal::load_device] No Metal device available."


@pytest.mark.parametrize(
    ("metal", "gpus", "there"), [(True, 1, True), (True, 0, False), (False, 1, False)]
)
def test_a_mac_on_which_metal_lists_no_gpu_has_none(metal: bool, gpus: int, there: bool) -> None:
    """MLX for Metal says that Metal is there, whatever it lists."""
    asked: list[Any] = []

    def count(kind: Any) -> int:
        asked.append(kind)
        return gpus

    assert has_gpu(lambda: metal, count) is there
    assert asked == ([mx.gpu] if metal else [])


def test_here_there_is_none() -> None:
    assert not has_gpu()


def test_of_a_gpu_that_is_not_there_nothing_is_asked() -> None:
    def raises(kind: Any) -> Mapping[str, Any]:
        raise RuntimeError(NONE_THERE)

    assert gpu_info("memory_size", lambda: False, raises) == 0
    assert gpu_info("memory_size", lambda: True, lambda _: {"memory_size": 7}) == 7


def test_nobody_takes_metal_for_a_gpu() -> None:
    root = Path(elasticd.__file__).parent
    asking = [path for path in root.rglob("*.py") if "metal.is_available" in path.read_text()]
    assert asking == [root / "train" / "gpu.py"]
