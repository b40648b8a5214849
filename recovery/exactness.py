"""Why a job's bits can't be promised, in the words that a cluster and a script alone have alike."""

from __future__ import annotations

FAST = 'reduction = "fast" sums in an order that depends on the members'
NO_REPEAT = (
    "one grain computed twice gave different bits: its samples or the loss draw from a generator "
    "of their own, or the processor adds in another order each time"
)


def refusal(reason: str) -> str:
    """What a job that requires exactness fails with."""
    return f"its bits can't be promised: {reason} ([world] require_exact = true)"
