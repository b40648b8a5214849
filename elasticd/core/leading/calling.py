"""On whom functions of ``run.on_main`` run in the next world, and who can't go on with its results.

Whatever has been used in a world is known to each of its members. So of those who keep their state
one that was in the newest world and knows the most knows all of it. Most often that is main. Who
waits to enter a world runs nothing before all others come, so the script has to be as far there as
anywhere.

Two sides of a partition may have gone on in the same body, each with results of its own. The state
that such a body leaves is not the same, though the step is: who has used results that the caller
does not have takes the state as a whole, and nobody takes anything from it. The side goes on whose
members have last agreed on a result: a checkpoint may have been written with it. A newer world in
which they never were all together has come to nothing.

A state that was given is what its step's body has left elsewhere: who has it does not run that
body, and can't give its results to others. Only a state from before the loop has what stands above
it still ahead; who has that begins there, once all have come to the world.
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
    pairs = list(zip(resume.members, resume.sources, strict=True))
    keeping = [node for node, source in pairs if source == "keep"]
    if not keeping:
        return resume.members[0], (), resume

    def known(node: NodeId) -> tuple[Tag, bool, int, Tag, bool, int, int]:
        held = holdings[node]
        counts = {called.body: called.count for called in held.calls}
        last = held.entered or NO_TAG
        used = [c.agreed or last for c in held.calls if c.used and c.body in (step, step + 1)]
        more, here = counts.get(step + 1, 0), counts.get(step, 0)
        newest, ended = max(used, default=NO_TAG), _has_ended(held, step)
        return newest, ended, held.body, last, not held.given, more, here

    caller = max(keeping, key=known)
    main = holdings[caller]
    theirs = {c.body: c for c in main.calls if c.body in (step, step + 1)}
    stay = {
        node
        for node in keeping
        if not _is_apart(holdings[node], main, theirs)
        and not _is_behind(holdings[node], main, step)
    }

    def source_of(node: NodeId, source: str) -> str:
        kind, _, holder = source.partition(":")
        good = kind not in ("peer", "updates") or NodeId(holder) in stay
        if kind == "keep":
            good = node in stay
        elif kind == "updates":
            good = good and _may_replay(holdings[node], main)
        return source if good else f"peer:{caller}"

    sources = tuple(source_of(*pair) for pair in pairs)
    counts = tuple((called.body, called.count) for called in theirs.values())
    moved = [n for (n, before), now in zip(pairs, sources, strict=True) if before != now]
    reason = resume.reason
    if moved:
        count = "s" if len(moved) == 1 else ""
        reason += f"; {', '.join(moved)} take{count} it from {caller}, as results of run.on_main()"
        reason += " differ"
    return caller, counts, replace(resume, sources=sources, reason=reason)


def _is_apart(ours: Holding, main: Holding, theirs: Mapping[int, Called]) -> bool:
    """Whether results may have been used here that main doesn't have."""
    its_worlds = {main.entered, *(called.agreed for called in main.calls)}
    for called in ours.calls:
        other = theirs.get(called.body)
        used = () if other is None else other.used
        both = min(len(called.used), len(used))
        if called.used[:both] != used[:both]:
            return True
        # Of a world of its own main has them, though it may not know yet that they may be used.
        if len(called.used) > both and not {ours.entered, called.agreed} & (its_worlds - {None}):
            return True
    return False


def _has_ended(held: Holding, step: int) -> bool:
    """Whether the state of ``step`` that it holds is what the body of that step has left."""
    if held.ended is not None:
        return held.ended
    return held.body > step or (held.given and step > 0)


def _is_behind(ours: Holding, main: Holding, step: int) -> bool:
    """Whether a call may still be made here in the body of ``step`` whose result main doesn't know,
    as it was given what that body has left elsewhere."""
    if not main.given or not _has_ended(main, step) or _has_ended(ours, step):
        return False
    makes = any(c.body == step for c in main.calls)
    alone = ours.entered == main.entered and not any(c.body == step for c in ours.calls)
    return not makes and not alone


def _may_replay(ours: Holding, main: Holding) -> bool:
    """Whether updates make main's state of the one that is held here: not if results may have been
    used in its body, or in the next one, that main has had otherwise and has forgotten."""
    assert ours.point is not None
    used = any(c.used for c in ours.calls if c.body >= ours.point.step)
    return not used or ours.entered == main.entered
