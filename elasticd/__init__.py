"""Fault-tolerant elastic training for MLX. A training script imports :class:`Run` from here."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticd import data as data
    from elasticd import plain as plain
    from elasticd.settings.distributed import DistributedConfig as DistributedConfig
    from elasticd.train import EMA as EMA
    from elasticd.train import MemoryOptimizer as MemoryOptimizer
    from elasticd.train import Run as Run
    from elasticd.train import Step as Step
    from elasticd.train import Weighted as Weighted
    from elasticd.train import all_reduce_grads as all_reduce_grads
    from elasticd.train import average_gradients as average_gradients
    from elasticd.train import check_weights as check_weights
    from elasticd.train import scaled_learning_rate as scaled_learning_rate

_MODULES = ("data", "plain")
_OTHERS = {"DistributedConfig": "elasticd.settings.distributed"}
_TRAINING = (
    "EMA", "MemoryOptimizer", "Run", "Step", "Weighted", "all_reduce_grads", "average_gradients",
    "check_weights", "scaled_learning_rate",
)  # fmt: skip
__all__ = [
    "DistributedConfig", "EMA", "MemoryOptimizer", "Run", "Step", "Weighted", "all_reduce_grads",
    "average_gradients", "check_weights", "data", "plain", "scaled_learning_rate", "__version__",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The daemon imports this package too and must not pay for MLX: load on first use.
    if name in _TRAINING:
        import elasticd.train

        return getattr(elasticd.train, name)
    if name in _OTHERS:
        return getattr(importlib.import_module(_OTHERS[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"elasticd.{name}")
    raise AttributeError(f"module 'elasticd' has no attribute {name!r}")


def _script_runs_alone() -> bool:
    """Whether this may be a training script without a daemon: a job.toml is beside it, in a folder
    above, or named."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script is None or "ELASTICD_CHILD" in os.environ or "ELASTICD_RESTARTS" in os.environ:
        return False  # a trainer's, or a plain job's
    if "ELASTICD_JOB" in os.environ:
        return True
    return any((folder / "job.toml").is_file() for folder in Path(script).resolve().parents)


if "__mp_main__" in sys.modules:  # so multiprocessing calls the script in what it has started
    from elasticd.train.reruns import hear_errors

    hear_errors()
if _script_runs_alone():
    # The script makes its model between this import and Run(...): its first numbers come now.
    from elasticd.train.beginning import begin_alone

    begin_alone()
