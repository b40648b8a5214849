"""The loss and its gradient as one compiled function, for ``Run(…, compile=True)``.

A trace has fixed what the loss read from Python: which parameters were frozen, a dropout's
probability, a temperature, a factor in ``run.state``. The loop's body may change these, and so may
a state that comes from elsewhere. Then the function is traced anew. Else what a shape of a batch is
computed with would go by the step in which this rank has met it first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.utils import value_and_grad

from elasticd.train.states.namespace import Namespace
from elasticd.train.states.picture import Picture
from elasticd.train.steps import randomness
from elasticd.train.steps.besides import ReadBesides
from elasticd.train.steps.passcaches import KnownEntries, PassCaches, arrays_of, nearly_same

TOLD_AFTER = 10
"""Steps in a row that were traced anew."""


class CompiledLoss:
    """Called as what ``mlx.nn.value_and_grad`` returns."""

    def __init__(
        self,
        model: Module,
        loss: Callable[..., Any],
        seed: int = 0,
        kept: Namespace | None = None,
    ) -> None:
        """``seed``: of what a trace draws. ``kept``: ``run.state``."""
        self._model, self._eager, self._seed = model, value_and_grad(model, loss), seed
        self._compiled: Callable[..., Any] | None = None
        self._traces: list[None] = []
        """One for each trace since the picture."""
        self._traced_with: Picture | None = None
        self._in_a_row = 0
        self._told = False
        self._known = KnownEntries(nearly_same)
        self._besides = ReadBesides(loss, kept)

    def track(self, name: str, thing: Any) -> None:
        """The loss may read it."""
        self._besides.track(name, thing)

    def renew(self) -> None:
        """Before the grains of a step: trace anew if the model's modules, or what the loss reads
        besides, are no longer as they were. What the trace itself has counted there is no change.
        If something can't be compared every step is traced anew."""
        if self._traced_with is None:
            return
        before, self._in_a_row = self._in_a_row, 0
        if self._traced_with.unseen:
            self._compiled = None
            self._tell(self._traced_with.unseen)
        elif change := self._traced_with.difference(self._picture()):
            self._compiled, self._in_a_row = None, before + 1
            if self._in_a_row == TOLD_AFTER:
                self._tell(f"{change} is another one each time")

    def __call__(self, model: Module, *args: Any, **named: Any) -> tuple[Any, Any]:
        if self._compiled is None:
            self._compiled = _compiled(self._model, self._eager, self._traces, self._seed)
            self._besides.forget()
        self._besides.call_begins()
        result: tuple[Any, Any]
        result, entries = self._compiled(args, named)
        self._known.check(entries)
        self._known.add(entries)
        if self._traces:
            self._traces.clear()
            self._besides.traced()
            self._traced_with = self._picture()
        return result

    def _picture(self) -> Picture:
        return Picture(self._model, self._besides.now())

    def _tell(self, why: str) -> None:
        if not self._told:
            self._told = True
            print(
                f"elasticd: compile=True traces the loss anew in each step, since {why}. It is "
                "right, and slow: keep that in an array of the model, or away from model and loss",
                file=sys.stderr,
            )


def _compiled(
    model: Module, eager: Callable[..., Any], traces: list[None], seed: int
) -> Callable[..., tuple[Any, Any]]:
    """It leads back to nothing that holds it, so that it is freed when another takes its place, and
    not in the middle of that one's trace, by the garbage collector."""

    def trace(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Called once for each shape of a batch. What it puts into dicts is that trace's."""
        traces.append(None)
        caches = PassCaches(model)
        caches.step_begins()
        try:
            with randomness.tracing(seed):
                result = eager(model, *args, **named)
            return result, arrays_of(caches.made())
        finally:
            caches.clear()

    state: Any = [model.state, mx.random.state]
    return mx.compile(trace, inputs=state, outputs=state)
