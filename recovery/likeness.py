"""Whether who joins has come to what those have who stayed; all are digests by name."""

from __future__ import annotations

from collections.abc import Mapping

from elasticd.recovery.divergence import MODEL_PART, Unlike
from elasticd.recovery.divergence import unlike as unlike_things
from elasticd.types import NodeId

_COMPUTED = ("model/", "optimizer/", "which parameters")
"""Names of what no script keeps by rank; all others are names of what it tracks."""
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
        "from step to step belongs into the model, the optimizer, run.state or run.track, with "
        "per_rank=True if it is each rank's own; if it is there, the node computes wrongly"
    )


def by_rank(kept: Mapping[NodeId, Mapping[str, str]]) -> Unlike | None:
    """The first thing that the script tracks and that those have otherwise who have ``kept`` their
    state: no newcomer is to blame. None if they have computed otherwise, too."""
    parts = {}
    for node, shown in kept.items():
        computed = sorted((n, d) for n, d in shown.items() if n.startswith(_COMPUTED))
        tracked = {n: d for n, d in shown.items() if not n.startswith(_COMPUTED)}
        parts[node] = {MODEL_PART: str(computed), **tracked}
    return unlike_things(parts)
