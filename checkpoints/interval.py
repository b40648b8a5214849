"""How often to checkpoint: the interval that costs least, after Young and Daly. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

UNSEEN_SECONDS = 86_400.0
"""Before anything was seen, one failure a day is assumed; what is seen outweighs it by and by."""
LEAST_COST_SECONDS = 0.001
"""A cost that can't be measured is still one."""
WRITES_APART = 2.0
"""The writer is idle for at least half of the time."""
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class BestInterval:
    """Checkpoint every so many ``steps``; ``reason`` is a sentence."""

    steps: int
    seconds: float
    reason: str


def best(
    cost_seconds: float,
    write_seconds: float,
    step_seconds: float,
    failures: int,
    watched_seconds: float,
) -> BestInterval:
    """The interval for checkpoints that each delay training by ``cost_seconds``.

    With a mean time M between failures an interval T costs C/T for checkpoints and T/2M for work
    that is lost: least at sqrt(2 C M). J. W. Young, CACM 17 (1974) 530; J. T. Daly, FGCS 22 (2006)
    303. It is never so short that ``write_seconds`` fill it.
    """
    between = (watched_seconds + UNSEEN_SECONDS) / (failures + 1)
    cost = max(cost_seconds, LEAST_COST_SECONDS)
    wanted = math.sqrt(2 * cost * between)
    seconds = max(wanted, WRITES_APART * write_seconds, step_seconds)
    steps = min(MAX_STEPS, max(1, round(seconds / step_seconds))) if step_seconds > 0 else 1
    reason = (
        f"a checkpoint delays training by {cost * 1000:.0f} ms and a failure is expected every "
        f"{between / 3600:.1f} h, so one every {wanted:.0f} s costs least"
    )
    if seconds > wanted:
        reason += f"; writing one takes {write_seconds:.1f} s, so every {seconds:.0f} s it is"
    return BestInterval(steps, seconds, reason)
