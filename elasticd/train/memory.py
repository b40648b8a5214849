"""How to set up a job by the memory that it takes, measured on real arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from elasticd.counting import counted
from elasticd.errors import UsageError
from elasticd.machinememory import total_bytes
from elasticd.recovery.fitting import MemoryFit, MemoryHold, MemoryPoint
from elasticd.settings.distributed import DistributedConfig
from elasticd.train.steps import relief

_MOMENTS = {"sgd": 0, "momentum": 1, "lion": 1, "adam": 2, "adamw": 2}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_SAMPLES = (1, 2, 4)
_USED = 0.9
"""Of the limit: the rest is for caches and for what no measurement has seen."""
_SMALL_MAC_BYTES = 36 << 30


@dataclass(frozen=True, slots=True)
class MemorySuggestion:
    """What :meth:`MemoryOptimizer.suggest_config` found; as text the reasons, one a line.

    Attributes:
        config: None: the model doesn't fit.
        limit_bytes: what a node may use.
        needed_bytes: what it takes with ``config``, or at least takes.
        sample_bytes: what each sample takes that is computed at once; None: not measured.
    """

    config: DistributedConfig | None
    limit_bytes: int
    needed_bytes: int
    sample_bytes: int | None
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.reasons)


class MemoryOptimizer:
    """Suggests how many samples to compute at once."""

    @staticmethod
    def suggest_config(
        *,
        model_size: int | str | nn.Module,
        num_devices: int,
        global_batch: int | None = None,
        step: Callable[[int], Any] | None = None,
        measured: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
        memory_bytes: int | None = None,
        optimizer: Literal["sgd", "momentum", "lion", "adam", "adamw"] = "adam",
        dtype: Literal["float32", "bfloat16", "float16"] | mx.Dtype = "float32",
    ) -> MemorySuggestion:
        """The most samples at once that fit in a node's memory, and why.

        Args:
            model_size: the model, whose arrays are counted; or how many parameters it has, as
                ``7_000_000_000`` or ``"7B"``, all of them trained, of ``dtype``.
            global_batch: samples in one optimizer step; default: as many as all compute at once.
            step: computes loss and gradients of so many samples and returns them. It is called
                with 1, 2 and 4, and what MLX takes meanwhile is measured.
            measured: jobs of ``status --json`` with the same model and optimizer, instead.
            memory_bytes: of the smallest node; default: this one.

        Raises:
            UsageError: an argument makes no sense.
        """
        kind = str(dtype).rpartition(".")[2] if isinstance(dtype, mx.Dtype) else dtype
        for name, value, known in (("optimizer", optimizer, _MOMENTS), ("dtype", kind, _BYTES)):
            if not isinstance(value, str) or value not in known:
                raise _wrong(f"{name}= must be one of {', '.join(known)}, not {value!r}")
        DistributedConfig(num_devices, 1)
        for name, count in (("global_batch", global_batch), ("memory_bytes", memory_bytes)):
            if count is not None and (type(count) is not int or count < 1):
                raise _wrong(f"{name}= must be a whole number from 1, not {count!r}")
        if step is not None and not callable(step):
            raise _wrong(f"step= must be a function of a number of samples, not {step!r}")
        if global_batch is not None and global_batch % num_devices:
            raise _wrong(f"global_batch={global_batch} is no multiple of {num_devices} devices")
        share = None if global_batch is None else global_batch // num_devices
        jobs = [measured] if isinstance(measured, Mapping) else measured
        if not isinstance(jobs, Sequence):
            raise _wrong(f"measured= must be jobs of status --json, not {jobs!r}")
        sizes = _sizes(model_size, _BYTES[kind])
        fit, said = _fitted(sizes, optimizer, [_of_job(job) for job in jobs], step)
        limit, limit_said = node_limit(memory_bytes)
        return _suggested(fit, limit, share, num_devices, [*said, limit_said])


def _fitted(
    sizes: tuple[int, int, int],
    optimizer: str,
    jobs: Sequence[tuple[int, int, int]],
    step: Callable[[int], Any] | None,
) -> tuple[MemoryFit, list[str]]:
    """What a node holds, by what was measured, and how that is known."""
    (weights, trained, gradient), moments = sizes, _MOMENTS[optimizer]
    resident = weights + (moments + 1) * gradient
    said = [
        f"weights {_gib(weights)}, {moments} moments of {optimizer} and the last gradient, each"
        f" {_gib(gradient)}: {_gib(resident)} all the time, reckoned"
    ]
    if jobs:
        resident = max(active for _, active, _ in jobs)
        said = [f"{_gib(resident)} all the time, measured by the job"]
    points = [MemoryPoint(samples, peak - active) for samples, active, peak in jobs]
    if step is not None:
        points += [_measured(step, samples) for samples in _SAMPLES]
    fit = MemoryFit.of(MemoryHold(resident, gradient, 4 * trained), points)
    if fit.sample_bytes is None:
        said.append(
            "what a sample takes (activations) is not known, as nothing was measured: give step= or"
            " measured=, or raise batch.micro while 'elasticctl status' shows room"
        )
    else:
        said.append(
            f"a grain {_gib(fit.fixed_bytes)} and {_gib(fit.sample_bytes)} a sample, measured"
            f" with {', '.join(str(n) for n in sorted({p.samples for p in points}))}"
        )
    return fit, said


def _suggested(
    fit: MemoryFit, limit: int, share: int | None, nodes: int, said: Sequence[str]
) -> MemorySuggestion:
    samples = fit.most(limit, share, nodes)
    if not samples:
        least = fit.needed(1, share * nodes if share else nodes)
        why = (
            f"it doesn't fit: {_gib(least)} are needed at least with one sample at once, on each"
            " node, as every node holds the whole model and more nodes don't change that. Train"
            ' fewer parameters ([recipe] kind = "mlx-lm" with LoRA), in bfloat16, or with an'
            " optimizer of fewer moments"
        )
        return MemorySuggestion(None, limit, least, fit.sample_bytes, (*said, why))
    accumulation = (share or samples) // samples
    config = DistributedConfig(nodes, samples, accumulation)
    needed = fit.needed(samples, nodes * accumulation)
    at_least = "at least " if fit.sample_bytes is None else ""
    why = (
        f"so {samples} at once and {counted(accumulation, 'time')} a step on each of {nodes}:"
        f" {at_least}{_gib(needed)}, also if one node has to compute all of a step"
    )
    return MemorySuggestion(config, limit, needed, fit.sample_bytes, (*said, why))


def _wrong(text: str) -> UsageError:
    return UsageError(f"elasticd.MemoryOptimizer: {text}")


def _sizes(model: int | str | nn.Module, bytes_each: int) -> tuple[int, int, int]:
    """Bytes of the weights, how many are trained, and bytes of one gradient."""
    if isinstance(model, nn.Module):
        module: Any = model
        arrays: Any = tree_flatten(module.parameters())
        trained: Any = tree_flatten(module.trainable_parameters())
        return (
            sum(array.nbytes for _, array in arrays),
            sum(array.size for _, array in trained),
            sum(array.nbytes for _, array in trained),
        )
    number = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmbt]?)", str(model).strip().lower())
    count = int(float(number[1]) * _UNITS[number[2]]) if number else 0
    if count < 1 or isinstance(model, bool):
        raise _wrong(f'model_size must be a model, or its parameters as "7B", not {model!r}')
    return count * bytes_each, count, count * bytes_each


def _of_job(job: Mapping[str, Any]) -> tuple[int, int, int]:
    """Samples at once, and the most that a rank holds and held."""
    try:
        samples = int(job["micro_batch"])
        ranks = [(int(r["active_bytes"]), int(r["peak_bytes"])) for r in job["ranks"]]
    except (KeyError, TypeError, ValueError):
        ranks, samples = [], 0
    active, peak = (
        max((rank[0] for rank in ranks), default=0),
        max((r[1] for r in ranks), default=0),
    )
    if samples < 1 or not 0 < active <= peak:
        raise _wrong(
            "measured= must be jobs of status --json whose ranks tell micro_batch, active_bytes and"
            " peak_bytes: ask while the job trains"
        )
    return samples, active, peak


def _measured(step: Callable[[int], Any], samples: int) -> MemoryPoint:
    """The second call counts: the first one compiles, and may make what stays."""
    for _ in range(2):
        mx.synchronize()
        mx.clear_cache()
        before = int(mx.get_active_memory())
        mx.reset_peak_memory()
        mx.eval(step(samples))
        extra = int(mx.get_peak_memory()) - before
    return MemoryPoint(samples, max(0, extra))


def node_limit(memory_bytes: int | None) -> tuple[int, str]:
    """What a node is to use, and how that is known."""
    told = relief.gpu_info("max_recommended_working_set_size")
    if memory_bytes is None and told:
        most, said = told, f"this Mac's GPU may use {_gib(told)}, as Metal says"
    else:
        whose = "a node has" if memory_bytes is not None else "this machine has"
        whole = memory_bytes if memory_bytes is not None else total_bytes()
        if not whole:
            raise _wrong("this system does not say how much memory it has: say memory_bytes=")
        is_small = whole <= _SMALL_MAC_BYTES
        most = whole * 2 // 3 if is_small else whole * 3 // 4
        said = (
            f"{whose} {_gib(whole)}, of which a Mac's GPU may use about"
            f" {'two thirds' if is_small else 'three quarters'}, {_gib(most)}: a rule, not measured"
        )
    limit = int(most * _USED)
    return limit, f"{said}; {_USED:.0%} of it are used: {_gib(limit)}"


def _gib(count: int) -> str:
    if count < 1 << 20:
        return f"{count / (1 << 10):.1f} KiB"
    return f"{count / (1 << 20):.1f} MiB" if count < 1 << 30 else f"{count / (1 << 30):.2f} GiB"
