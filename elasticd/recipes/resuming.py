"""Training that begins with adapters from a file (``resume_adapter_file``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.train.states.trees import arrays


def resume(model: Any, file: str) -> None:
    """Give the ``model``, of which all is frozen that is not trained, what is in the ``file``.

    Raises:
        UsageError: it can't be read, or has something else than what is trained.
    """
    try:
        found: Any = mx.load(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"resume_adapter_file {file} can't be read: {error}") from None
    try:
        if not isinstance(found, dict):
            raise ValueError("it has no names in it, but a single array")
        _check(model, found)
    except ValueError as error:
        raise UsageError(f"resume_adapter_file {file}: {error}") from None
    model.load_weights(list(found.items()), strict=False)


def _check(model: Any, found: Mapping[str, mx.array]) -> None:
    """What is not trained would be in no file that the job writes. Raises ValueError."""
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


def _first_layer(model: Any, names: Collection[str]) -> int:
    """The number of the first layer that has one of these parameters; none: how many there are."""
    numbers = {id(layer): number for number, layer in enumerate(model.layers)}
    paths = {f"{p}.": numbers[id(m)] for p, m in model.named_modules() if id(m) in numbers}
    found = [n for path, n in paths.items() if any(name.startswith(path) for name in names)]
    return min(found, default=len(numbers))
