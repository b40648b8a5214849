"""``elasticd.EMA``: the moving average of a model's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from elasticd.errors import UsageError
from elasticd.train.states.state import model_tree
from elasticd.train.states.trees import array_slots, check_alike, is_real, share


class EMA:
    """Follows ``model`` slowly: ``average = decay * average + (1 - decay) * parameter``.

    Give it to ``run.track`` before the loop, and call :meth:`update` once in each body::

        ema = elasticd.EMA(model, decay=0.999)
        run.track("ema", ema)
        for step in run:
            ema.update()

    Parameters of half precision are averaged in float32. Frozen ones are averaged too.
    """

    def __init__(self, model: Module, decay: float) -> None:
        """Begin at the model's present parameters.

        Raises:
            UsageError: ``model`` is no module, or ``decay`` is not between 0 and 1.
        """
        if not isinstance(model, Module):
            raise UsageError(f"EMA(model=) is a {type(model).__name__}, not an mlx.nn.Module")
        if not is_real(decay) or not 0 <= decay < 1:
            raise UsageError(f"EMA(decay=) must be a number from 0 and below 1, not {decay!r}")
        self.decay = decay
        self._model = model
        self._average = {path: _wide(slot.value) for path, slot in self._slots().items()}
        mx.eval(self._average)

    def _slots(self) -> dict[str, Any]:
        return array_slots(model_tree(self._model))

    def update(self) -> None:
        """Take one step towards the model's parameters."""
        for path, slot in self._slots().items():
            value = _wide(slot.value)
            if path in self._average and mx.issubdtype(value.dtype, mx.floating):
                value = self.decay * self._average[path] + (1 - self.decay) * value
            self._average[path] = value
        mx.eval(self._average)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averages while this lasts, and its own parameters behind it."""
        places = array_slots(self._model.state)
        own = {path: slot.value for path, slot in places.items() if path in self._average}
        for path, value in own.items():
            places[path].put(self._average[path].astype(value.dtype))
        try:
            yield
        finally:
            for path, value in own.items():
                places[path].put(value)

    def state_dict(self) -> dict[str, Any]:
        """The averages, by path."""
        return {path: share(array) for path, array in self._average.items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from averages that :meth:`state_dict` gave.

        Raises:
            MismatchError: they are of another model.
        """
        check_alike("ema:", self._average, saved)
        self._average = dict(saved)


def _wide(array: mx.array) -> mx.array:
    return array.astype(mx.float32) if array.dtype in (mx.float16, mx.bfloat16) else share(array)
