"""Why a job's bits can't be promised, in the words that a cluster and a script alone have alike."""

from __future__ import annotations

OUTSIDE = "the script keeps state outside of run.state"
FORGOTTEN = "the script's state outside of run.state is lost"
"""Its members are alike still."""
FAST = 'reduction = "fast" sums in an order that depends on the members'
_UNREPEATED = "one grain computed twice gave different bits"
NO_REPEAT = (
    f"{_UNREPEATED}: its samples or the loss draw from a generator of their own, or the processor "
    "adds in another order each time, or samples or loss depend on how often they were asked for, "
    "as in a dataset that counts them"
)
"""The release before looks for these words up to "each time"."""
UNTOLD = "a world of an earlier leader was not exact; no record says why"
GRADIENTS_DIFFER = "gradients differ between"
UPDATES_DIFFER = "updates differ between"
LAYOUTS_DIFFER = "state leaves differ between"
BACK_ON_GPUS = "updates were made on GPUs again"
_OF_BITS = (_UNREPEATED, GRADIENTS_DIFFER, UPDATES_DIFFER, LAYOUTS_DIFFER, BACK_ON_GPUS)


def tells_of_bits(why: str) -> bool:
    """Whether it says that members compute different bits of the same."""
    return any(text in why for text in _OF_BITS)


def weightier(one: str, other: str) -> str:
    """Which of two reasons a job's record keeps, whichever side asks: rather one that tells of
    bits, since states may differ then though nobody computes wrongly; then one by which members may
    differ at all; last that nobody knows why.
    """

    def weight(why: str) -> tuple[bool, bool, bool, bool, str]:
        return bool(why), tells_of_bits(why), why != UNTOLD, FORGOTTEN not in why, why

    return max(one, other, key=weight)


def forgotten(node: str, step: int) -> str:
    """Why it isn't exact from ``step`` on: nobody goes on there who had what the script keeps
    outside of run.state, of which there is some as ``node`` has shown."""
    return (
        f"{FORGOTTEN}: what {node} computed when it joined shows that there is some, or it computes"
        f" wrongly. No checkpoint has such state, and nobody who had it goes on from step {step}"
    )


def refusal(reason: str) -> str:
    """What a job that requires exactness fails with."""
    return f"its bits can't be promised: {reason} ([world] require_exact = true)"
