"""What every member and spare of a job must have alike when its script comes to ``Run``."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx.nn.layers.normalization import BatchNorm

from elasticd import systemtools
from elasticd.checkpoints.codec import model_digest
from elasticd.recovery.relief import LEAST_MICRO
from elasticd.settings.job import JobSpec
from elasticd.train.states.state import TrainingState, model_tree
from elasticd.train.states.trees import arrays, describe, walk
from elasticd.train.steps.data import Source

_FILES = 1000
_COMPILER = ("g++", "--version")
_COMPILER_SECONDS = 30.0


def fingerprint(
    spec: JobSpec, state: TrainingState, source: Source, grain0: Any, clip_norm: float | None
) -> dict[str, str]:
    """A flat map of short strings. ``grain0`` is the first batch of step 1."""
    found = {f"model/{path}": describe(a) for path, a in arrays(state.model.state).items()}
    found |= {f"base/{name}": digest for name, digest in state.base.files.items()}
    if state.optimizer is not None:
        found["optimizer"] = type(state.optimizer).__name__
        for path, array in arrays(state.optimizer.state).items():
            found[f"optimizer/{path}"] = describe(array)
    trainable = "\n".join(sorted(arrays(model_tree(state.model, trainable=True))))
    found["trainable"] = hashlib.blake2b(trainable.encode(), digest_size=16).hexdigest()
    found["dataset"] = source.describe()
    found |= _of_files(source.digests())
    found["grain0"] = _batch_digest(grain0)
    found["batch"] = f"{spec.batch.global_}/{spec.batch.micro}"
    # Batch statistics of one sample are none: grains are not halved below this.
    modules: list[Any] = state.model.modules()  # type: ignore[no-untyped-call]
    norms = any(isinstance(module, BatchNorm) for module in modules)
    found[LEAST_MICRO] = "2" if norms else "1"
    found["seed"] = str(spec.train.seed)
    found["clip_norm"] = str(clip_norm)
    # Fused and unfused kernels differ in their bits (the compiler is asked for at the first use).
    found["mlx"] = f"{_mlx_version()} {_device()} {'fused' if _fuses() else 'unfused'}"
    return found


def _of_files(digests: Mapping[str, str]) -> dict[str, str]:
    """By name, so that one that differs is named; behind a thousand of them all together."""
    names = sorted(digests)
    found = {f"data/{name}": digests[name] for name in names[:_FILES]}
    if rest := [f"{name}\0{digests[name]}" for name in names[_FILES:]]:
        text = "\n".join(rest).encode(errors="surrogateescape")
        found["data of other files"] = hashlib.blake2b(text, digest_size=16).hexdigest()
    return found


def _batch_digest(batch: Any) -> str:
    parts = list(walk(batch))
    mx.eval(parts)
    return model_digest({f"{number:08d}": part for number, part in enumerate(parts)})[:32]


def _mlx_version() -> str:
    from importlib.metadata import version

    return version("mlx")


def _device() -> str:
    return str(mx.default_device()).split("(")[1].split(",")[0]


def _fuses() -> bool:
    return "gpu" in _device() or has_compiler()


@functools.cache
def has_compiler(run: Callable[[Sequence[str], float], tuple[int, str]] = systemtools.run) -> bool:
    """Whether MLX fuses kernels on the CPU: it asks the same, once in a process. That there is such
    a program says little. On a Mac it is there without Apple's command line tools, too, and fails.
    """
    try:
        return run(_COMPILER, _COMPILER_SECONDS)[0] == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
