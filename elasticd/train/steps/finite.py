"""What job.toml wants where a step's loss, or its gradient, is not finite."""

from __future__ import annotations

import math

from elasticd.errors import GenerationLost
from elasticd.train.states.updates import Reduced
from elasticd.train.steps.seat import Seat


def skips(seat: Seat, step: int, reduced: Reduced) -> bool:
    """Whether ``step`` is committed without its update: the same on every rank, since all have the
    bits of what was reduced. A batch without any weight says nothing, so its step is skipped.

    Raises:
        GenerationLost: the job ends, or goes back.
    """
    loss, weight = reduced.loss, reduced.weight
    if math.isfinite(loss) and not reduced.not_finite:
        return False
    policy = seat.spec.recovery.on_nan if weight else "skip"
    said = str(loss)
    if math.isfinite(loss):
        said = f"{loss:.6g}, and the gradient of {reduced.not_finite} is not finite"
    elif not math.isfinite(weight):  # then no mean is, whatever the losses are
        said += f", as the sum of its weights is {weight}"
    if policy == "stop":
        reason = f'the loss of step {step} is {said} (recovery.on_nan = "stop")'
        seat.refuse(reason)
        raise GenerationLost(reason)
    seat.not_finite(step, said, policy)
    return True
