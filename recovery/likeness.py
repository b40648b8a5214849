"""Whether who joins has come to what those have who stayed; both are digests by name."""

from __future__ import annotations

from collections.abc import Mapping

_SHOWN = 3


def unlike(ours: Mapping[str, str], theirs: Mapping[str, str], keeper: str, step: int) -> str:
    """What ``theirs`` has otherwise than ``ours``, which is ``keeper``'s; empty if nothing."""
    differ = (n for n in {*ours, *theirs} if ours.get(n) != theirs.get(n))
    # The model's arrays may only show what comes of the rest.
    names = sorted(differ, key=lambda name: (name.startswith("model/"), name))
    if not names:
        return ""
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return (
        f"the script keeps state outside of run.state: in its first step, {step}, this node comes "
        f"to something else than {keeper}, which has trained before: {shown}. What the body keeps "
        "from step to step belongs into the model, the optimizer, run.state or run.track; if it is "
        "there, the node computes wrongly"
    )
