"""Whether MLX has a GPU to compute with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

_COUNT: Callable[[Any], int] = getattr(mx, "device_count", lambda _: 1)
"""An MLX that is too old for jobs, and is only looked at, may have none."""


def has_gpu(
    metal: Callable[[], bool] = mx.metal.is_available,
    count: Callable[[Any], int] = _COUNT,
) -> bool:
    """Whether there is one that Metal lists.

    Args:
        metal: whether this MLX is built for Metal. On a Mac it says so where there is no GPU, too.
        count: counts those that Metal lists.
    """
    return bool(metal()) and count(mx.gpu) > 0
