"""On whom functions of ``run.on_main`` run in the next world, and who can't go on with its results.

Whatever has been used in a world is known to each of its members. So of those who keep their state
one that was in the newest world and knows the most knows all of it. Most often that is main. Who
waits to enter a world runs nothing before all others come, so the script has to be as far there as
anywhere.

Two sides of a partition may have gone on in the same body, each with results of its own. The state
that such a body leaves is not the same, though the step is: who has used other results than the
caller takes the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elasticd.core.words.records import Called
from elasticd.core.words.worlds import Holding
from elasticd.recovery.restore import Resume
from elasticd.types import NO_TAG, NodeId, Tag

Counts = tuple[tuple[int, int], ...]
"""(step, n): of the results of that step's body n are known."""


def arranged(resume: Resume, holdings: Mapping[NodeId, Holding]) -> tuple[NodeId, Counts, Resume]:
    """The caller, what it knows, and the world's sources."""
    step = resume.point.step
    pairs = zip(resume.members, resume.sources, strict=True)
    keeping = [node for node, source in pairs if source == "keep"]
    if not keeping:
        return resume.members[0], (), resume

    def known(node: NodeId) -> tuple[Tag, int, bool, int, int]:
        held = holdings[node]
        counts = {called.body: called.count for called in held.calls}
        last = held.entered or NO_TAG
        more, here = counts.get(step + 1, 0), counts.get(step, 0)
        return last, held.body, not held.given, more, here

    caller = max(keeping, key=known)
    theirs = {c.body: c for c in holdings[caller].calls if c.body in (step, step + 1)}
    apart = [n for n in keeping if any(_differs(c, theirs) for c in holdings[n].calls)]
    sources = tuple(
        f"peer:{caller}" if node in apart else source
        for node, source in zip(resume.members, resume.sources, strict=True)
    )
    counts = tuple((called.body, called.count) for called in theirs.values())
    return caller, counts, replace(resume, sources=sources)


def _differs(ours: Called, theirs: Mapping[int, Called]) -> bool:
    other = theirs.get(ours.body)
    if other is None:
        return False
    both = min(len(ours.used), len(other.used))
    return ours.used[:both] != other.used[:both]
