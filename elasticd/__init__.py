"""Fault-tolerant elastic training for MLX. A training script imports :class:`Run` from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticd.train import Run as Run
    from elasticd.train import Step as Step

__all__ = ["Run", "Step", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The daemon imports this package too and must not pay for MLX: load on first use.
    if name in ("Run", "Step"):
        import elasticd.train

        return getattr(elasticd.train, name)
    raise AttributeError(f"module 'elasticd' has no attribute {name!r}")
