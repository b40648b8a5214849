"""The loss and its gradient as one compiled function, for ``Run(…, compile=True)``.

A trace has fixed what the loss read from Python: which parameters were frozen, a dropout's
probability, a temperature. The loop's body may change these, and so may a state that comes from
elsewhere. Then the function is traced anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.utils import value_and_grad

from elasticd.train.states.attributes import alike, remembered
from elasticd.train.states.holders import holders_of

MODEL = "model"


class CompiledLoss:
    """Called as what ``mlx.nn.value_and_grad`` returns."""

    def __init__(self, model: Module, loss: Callable[..., Any]) -> None:
        self._model, self._eager = model, value_and_grad(model, loss)
        self._compiled: Callable[..., Any] | None = None
        self._traces = False
        self._traced_with: dict[str, Any] = {}

    def renew(self) -> None:
        """Before the grains of a step: trace anew if the model's modules are no longer as they
        were. What the trace itself has counted there is no change."""
        if self._compiled is not None and not alike(self._traced_with, self._look()):
            self._compiled = None

    def __call__(self, model: Module, *args: Any, **named: Any) -> tuple[Any, Any]:
        if self._compiled is None:
            state: Any = [model.state, mx.random.state]
            self._compiled = mx.compile(self._trace, inputs=state, outputs=state)
        result: tuple[Any, Any] = self._compiled(args, named)
        if self._traces:
            self._traces, self._traced_with = False, self._look()
        return result

    def _trace(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Called once for each shape of a batch."""
        self._traces = True
        return self._eager(self._model, *args, **named)

    def _look(self) -> dict[str, Any]:
        """What the modules hold besides arrays, and which they are."""
        holders = holders_of(MODEL, self._model)
        modules: list[Any] = self._model.modules()  # type: ignore[no-untyped-call]
        values = {path: remembered(holder.values()) for path, holder in holders.items()}
        return {"modules": [id(module) for module in modules], "values": values}
