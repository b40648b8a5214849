"""Fault-tolerant elastic training for MLX. A training script imports :class:`Run` from here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticd.train import EMA as EMA
    from elasticd.train import Run as Run
    from elasticd.train import Step as Step
    from elasticd.train import Weighted as Weighted

__all__ = ["EMA", "Run", "Step", "Weighted", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The daemon imports this package too and must not pay for MLX: load on first use.
    if name in ("EMA", "Run", "Step", "Weighted"):
        import elasticd.train

        return getattr(elasticd.train, name)
    raise AttributeError(f"module 'elasticd' has no attribute {name!r}")


def _script_runs_alone() -> bool:
    """Whether this is a training script without a daemon: a job.toml is beside it, or named."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None or "ELASTICD_CHILD" in os.environ:
        return False
    return "ELASTICD_JOB" in os.environ or Path(script).with_name("job.toml").is_file()


if _script_runs_alone():
    # The script makes its model between this import and Run(...): its first numbers come now.
    from elasticd.train.beginning import begin_alone

    begin_alone()
