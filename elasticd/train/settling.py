"""What a GPU has computed counts once it is known that nothing failed there.

On Metal an evaluation may return before the failure of an earlier command buffer is known. So who
lets something out of this process (gradients, digests, shards) waits for the GPU once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from elasticd.train.gpu import has_gpu


def settled(
    there: Callable[[], bool] = has_gpu,
    wait: Callable[[Any], None] = mx.synchronize,
) -> None:
    """Wait until this thread's default stream of the GPU has done its work, also where the script
    computes on the CPU by default: it may have put parts of it on the GPU.

    Args:
        there: whether there is one. MLX for Linux has the CPU alone, and nothing is waited for.
        wait: waits for a device's default stream.

    Raises:
        RuntimeError: something has failed there.
    """
    if there():
        wait(mx.gpu)
