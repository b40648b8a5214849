"""What a training script imports (``elasticd.Run``), and the process that runs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticd.train.run import Run as Run
    from elasticd.train.states.average import EMA as EMA
    from elasticd.train.steps.step import Step as Step
    from elasticd.train.steps.weighted import Weighted as Weighted

__all__ = ["EMA", "Run", "Step", "Weighted"]

_MODULES = {
    "EMA": "elasticd.train.states.average",
    "Run": "elasticd.train.run",
    "Step": "elasticd.train.steps.step",
    "Weighted": "elasticd.train.steps.weighted",
}


def __getattr__(name: str) -> Any:
    # A trainer says hello to its daemon before it loads MLX, which takes a while.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'elasticd.train' has no attribute {name!r}")
