"""What a loss function may return: a mean, or a mean with its weight and figures to show."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import mlx.core as mx

from elasticd.errors import UsageError
from elasticd.settings.rules import encodable

STEP = "step"
"""The argument of a loss that is given the step's number."""
_WEIGHT_IS = (
    "it must be a finite number from 0, in elasticd.Weighted(mean, weight) and step.accumulate(…,"
    " weight=): put a sign into the mean"
)
_NO_METRICS: Mapping[str, Any] = MappingProxyType({})


class Weighted(NamedTuple):
    """What a loss returns where samples don't weigh the same, or where it has figures to show.

    ``mean`` is the mean over the batch, and what is differentiated. ``weight`` says how much the
    batch counts beside the others, from 0: the number of its tokens, say. ``metrics`` are further
    means over the same batch, by name. They come back as ``step.metrics``, over the global batch.
    """

    mean: Any
    weight: Any
    metrics: Mapping[str, Any] = _NO_METRICS


@dataclass(frozen=True)
class GrainLoss:
    """What one grain came to: scalars. ``counted``: its weight is the number of its samples."""

    mean: mx.array
    weight: mx.array
    counted: bool
    metrics: Mapping[str, mx.array]


def loss_of(given: Any, samples: int, weight: Any, metrics: Mapping[str, Any] | None) -> GrainLoss:
    """The loss that a script gave for a batch of ``samples``; ``weight`` and ``metrics`` as given
    beside it, or None.

    Raises:
        UsageError: it is neither a mean nor a :class:`Weighted`, or its weight is none.
    """
    if isinstance(given, Weighted):
        if weight is not None or metrics is not None:
            raise UsageError("weight= and metrics= are for a loss that is no elasticd.Weighted")
        given, weight, metrics = given
    elif isinstance(given, (tuple, list)):
        # It could be (mean, weight) or (loss, accuracy): taken for the other it would mistrain.
        raise UsageError(
            f"the loss is a {type(given).__name__} of {len(given)} values; return the mean alone, "
            "or elasticd.Weighted(mean, weight, metrics={'name': value}) where samples don't weigh "
            "the same or there is more to show"
        )
    shown = {_named(name): _scalar(f"metric {name!r}", value) for name, value in _items(metrics)}
    counted = weight is None
    heavy = _scalar("weight", samples) if weight is None else _weight(weight)
    return GrainLoss(_scalar("loss", given), heavy, counted, shown)


def check_total(weight: float) -> None:
    """``weight`` is the sum of the weights of a step.

    Raises:
        UsageError: one of them was negative.
    """
    if weight == -math.inf:
        raise UsageError(f"a batch's weight was negative; {_WEIGHT_IS}")


def _weight(given: Any) -> mx.array:
    """An array's value isn't known yet: a negative one becomes so that it shows in the sum of a
    step's weights."""
    weight = _scalar("weight", given)
    if isinstance(given, mx.array):
        return mx.where(weight < 0, -math.inf, weight)
    if not 0 <= (value := float(weight.item())) < math.inf:  # type: ignore[arg-type]
        raise UsageError(f"a batch's weight is {value}; {_WEIGHT_IS}")
    return weight


def explained(error: ValueError) -> str:
    """What MLX means where it can't differentiate a loss, in a script's words; or nothing."""
    text = str(error)
    if text.startswith("[vjp] Output shape"):
        return "the loss has more than one number; return the mean of them, as in loss.mean()"
    if text.startswith("[grad] Must specify at least one argument"):
        return "the model has nothing to train: all of its parameters are frozen, or it has none"
    return ""


def spread_lengths(loss: Callable[..., Any]) -> range:
    """The lengths of a tuple with which ``loss(model, *batch)`` is meant: it asks for several
    arguments behind the model, and so many fit."""
    parameters = [p for p in _behind_model(loss) if p.name != STEP]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return range(sys.maxsize)
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in places)
    return range(needed, len(places) + 1) if needed > 1 else range(0)


def takes_step(loss: Callable[..., Any]) -> bool:
    """Whether ``loss`` wants to know the step's number."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(p.name == STEP and p.kind in named for p in _behind_model(loss))


def _behind_model(loss: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(loss).parameters.values())[1:]
    except (TypeError, ValueError):
        return []


def _named(name: object) -> str:
    text = str(name)
    if encodable(text) != text:
        raise UsageError(f"the name of metric {text!r} is no valid Unicode: encode it otherwise")
    return text


def _items(metrics: Any) -> list[tuple[Any, Any]]:
    if metrics is None:
        return []
    if not isinstance(metrics, Mapping):
        raise UsageError(f"the metrics of a loss are a {type(metrics).__name__}, not a dict")
    return sorted(metrics.items())


def _scalar(what: str, value: Any) -> mx.array:
    try:
        array = value if isinstance(value, mx.array) else mx.array(value)
    except (TypeError, ValueError):
        raise UsageError(f"the {what} is a {type(value).__name__}; it must be one number") from None
    if array.size != 1:
        raise UsageError(f"the {what} has shape {array.shape}; it must be one number")
    return array.astype(mx.float32).reshape(())
