"""What a training script imports (``elasticd.Run``), and the process that runs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticd.train.averaging import all_reduce_grads as all_reduce_grads
    from elasticd.train.averaging import average_gradients as average_gradients
    from elasticd.train.memory import MemoryOptimizer as MemoryOptimizer
    from elasticd.train.run import Run as Run
    from elasticd.train.sameness import check_weights as check_weights
    from elasticd.train.scaling import scaled_learning_rate as scaled_learning_rate
    from elasticd.train.states.average import EMA as EMA
    from elasticd.train.steps.step import Step as Step
    from elasticd.train.steps.weighted import Weighted as Weighted

__all__ = [
    "EMA",
    "Run",
    "Step",
    "Weighted",
    "all_reduce_grads",
    "average_gradients",
    "check_weights",
    "scaled_learning_rate",
]

_MODULES = {
    "EMA": "elasticd.train.states.average",
    "MemoryOptimizer": "elasticd.train.memory",
    "Run": "elasticd.train.run",
    "Step": "elasticd.train.steps.step",
    "Weighted": "elasticd.train.steps.weighted",
    "all_reduce_grads": "elasticd.train.averaging",
    "average_gradients": "elasticd.train.averaging",
    "check_weights": "elasticd.train.sameness",
    "scaled_learning_rate": "elasticd.train.scaling",
}


def __getattr__(name: str) -> Any:
    # A trainer says hello to its daemon before it loads MLX, which takes a while.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'elasticd.train' has no attribute {name!r}")
