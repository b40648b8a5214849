"""Training that begins with adapters from a file (``resume_adapter_file``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.recipes.adapters import Meaning
from elasticd.settings.recipe import MlxLm, folder_of_adapters
from elasticd.settings.rules import show
from elasticd.train.states.trees import arrays, dtype_name

_HALVES = (mx.bfloat16, mx.float16)
"""Of which float32 has each value."""


def resume(model: Any, config: MlxLm, file: str) -> None:
    """Give the ``model``, of which all is frozen that is not trained, what is in the ``file``.

    Raises:
        UsageError: it can't be read, has something else than what is trained, or would mean
            something else here.
    """
    if Path(file).is_dir():
        raise UsageError(f"resume_adapter_file: {folder_of_adapters(file)}")
    try:
        found, head = _load(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"resume_adapter_file {file} can't be read: {error}") from None
    try:
        if not isinstance(found, dict):
            raise ValueError("it has no names in it, but a single array")
        _check_meaning(Meaning.told(Path(file), head), Meaning.of(config))
        fitted = _fitted(model, found)
    except ValueError as error:
        raise UsageError(f"resume_adapter_file {file}: {error}") from None
    model.load_weights(list(fitted.items()), strict=False)


def _load(file: str) -> tuple[Any, Mapping[str, str]]:
    """What is in it, and in its head."""
    if Path(file).suffix != ".safetensors":
        return mx.load(file), {}
    found: Any = mx.load(file, return_metadata=True)
    return found[0], found[1]


def _check_meaning(theirs: Meaning, ours: Meaning) -> None:
    """The same weights would be another model. Raises ValueError."""
    for key, was, now in (
        ("fine_tune_type", theirs.kind, ours.kind),
        ("lora_parameters.scale", theirs.scale, ours.scale),
    ):
        if None not in (was, now) and was != now:
            raise ValueError(
                f"its adapters were trained with {key} = {show(was)}, and would be another model"
                f" with this job's {show(now)}: set {key} to {show(was)}"
            )


def _fitted(model: Any, found: Mapping[str, mx.array]) -> dict[str, mx.array]:
    """Each array with the type that is trained here: with few digits what a step adds is lost.
    What is not trained would be in no file that the job writes. Raises ValueError."""
    trained, there = arrays(model.trainable_parameters()), arrays(model.parameters())
    lacking = [name for name in found if name not in trained]
    below, count = _first_layer(model, lacking), len(model.layers)
    if below < _first_layer(model, trained):
        raise ValueError(
            f"the file trains layer {below} too: num_layers must be at least {count - below}"
        )
    for name, array in found.items():
        if name not in there or there[name].shape != array.shape:
            raise ValueError(f"{name} does not fit the model")
    if lacking:
        raise ValueError(
            f"{lacking[0]} is not trained here: the files that the job writes would lack it"
        )
    return {name: _as_here(name, array, there[name].dtype) for name, array in found.items()}


def _as_here(name: str, array: mx.array, wanted: mx.Dtype) -> mx.array:
    """Raises ValueError: that would lose digits, or what is too big."""
    fits = array.dtype == wanted or (array.dtype in _HALVES and wanted == mx.float32)
    made = array.astype(wanted)
    if not fits:
        raise ValueError(
            f"{name} is of type {dtype_name(array)}, and {dtype_name(made)} is trained here, which"
            f" would lose digits of it: convert the file, or take a model of {dtype_name(array)}"
        )
    return made


def _first_layer(model: Any, names: Collection[str]) -> int:
    """The number of the first layer that has one of these parameters; none: how many there are."""
    numbers = {id(layer): number for number, layer in enumerate(model.layers)}
    paths = {f"{p}.": numbers[id(m)] for p, m in model.named_modules() if id(m) in numbers}
    found = [n for path, n in paths.items() if any(name.startswith(path) for name in names)]
    return min(found, default=len(numbers))
