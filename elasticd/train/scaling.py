"""A learning rate for another global batch.

Nobody needs this because of the number of nodes: elasticd keeps ``batch.global``, whatever happens
to the world, and so the learning rate. It is for whoever changes ``batch.global`` himself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from elasticd.errors import UsageError

Rate = TypeVar("Rate", float, Callable[[Any], Any])


def scaled_learning_rate(
    learning_rate: Rate,
    base_batch: int,
    batch: int,
    rule: Literal["linear", "sqrt"] = "linear",
    *,
    same_samples: bool = False,
) -> Rate:
    """What was ``learning_rate`` with a global batch of ``base_batch``, for one of ``batch``.

    Args:
        learning_rate: a number, or a schedule: a function of the step, as those of
            ``mlx.optimizers``.
        rule: ``"linear"``: times batch / base_batch, as is usual for SGD, with a warm-up.
            ``"sqrt"``: times its square root, as is usual for Adam and its kin.
        same_samples: a schedule goes by samples: it gets as far in one step as it did in
            batch / base_batch.

    Raises:
        UsageError: a number or the rule is none that this can be done with.
    """
    for name, value in (("base_batch", base_batch), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(
                f"scaled_learning_rate: {name} must be an integer from 1, not {value!r}"
            )
    ratio = batch / base_batch
    if rule not in ("linear", "sqrt"):
        raise UsageError(f'scaled_learning_rate: rule must be "linear" or "sqrt", not {rule!r}')
    factor = ratio if rule == "linear" else math.sqrt(ratio)
    if callable(learning_rate):
        pace = ratio if same_samples else 1
        return lambda step: learning_rate(step * pace) * factor  # type: ignore[return-value]
    if (
        isinstance(learning_rate, bool)
        or not isinstance(learning_rate, (int, float))
        or not 0 <= learning_rate < math.inf
    ):
        raise UsageError(
            "scaled_learning_rate: learning_rate must be a finite number from 0, or a schedule,"
            f" not {learning_rate!r}"
        )
    return learning_rate * factor
