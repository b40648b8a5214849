"""What a training script imports (``elasticd.Run``), and the process that runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticd.train.run import Run as Run
    from elasticd.train.steps.step import Step as Step

__all__ = ["Run", "Step"]


def __getattr__(name: str) -> Any:
    # A trainer says hello to its daemon before it loads MLX, which takes a while.
    if name == "Run":
        from elasticd.train.run import Run

        return Run
    if name == "Step":
        from elasticd.train.steps.step import Step

        return Step
    raise AttributeError(f"module 'elasticd.train' has no attribute {name!r}")
