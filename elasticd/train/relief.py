"""What this process gives up for want of memory, as its world says."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module

from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.train import recompute

_CACHE_BYTES = 64 << 20
"""What MLX may keep of freed memory once memory was short."""


class Relief:
    """Levels of :mod:`elasticd.recovery.relief`; the halving of grains is the engine's."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self.level = 0

    def apply(self, level: int) -> None:
        """Do what ``level`` asks for and lower ones did not. Nothing is ever taken back."""
        if level <= self.level:
            return
        mx.set_cache_limit(_CACHE_BYTES)
        mx.clear_cache()
        if self.level < RECOMPUTE_LEVEL <= level:
            recompute.switch_on(self._model)
        self.level = level
