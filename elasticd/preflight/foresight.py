"""Which nodes a new job is to do without, by what a preflight of it has found: failed checks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from elasticd.preflight.firststeps import GRADIENTS
from elasticd.preflight.nodes import ANSWERS, CheckResult
from elasticd.types import NodeId

_LONG = (GRADIENTS,)
"""What takes too long to be looked at anew when a job begins."""


def unfit_nodes(
    stored: Sequence[CheckResult],
    fresh: Sequence[CheckResult],
    answered: Collection[NodeId],
    able: Collection[NodeId],
    least: int,
) -> dict[NodeId, str]:
    """The nodes on which a check fails, each with the reason; none if too few were left.

    ``stored``: what the preflight has found. ``fresh``: what those that have ``answered`` say now,
    which counts instead, but for what takes long. ``able``: nodes that are here and train.
    ``least``: the job has at least so many.
    """
    counted = [each for each in stored if NodeId(each.where) not in answered or each.check in _LONG]
    found: dict[NodeId, str] = {}
    for each in (*counted, *fresh):
        node = NodeId(each.where)
        if each.verdict == "fail" and each.check != ANSWERS and node in able:
            # Of several the first is enough: mended, the next preflight says the others.
            found.setdefault(node, f"its preflight fails: {each.check}: {each.value}. {each.cure}.")
    return found if len({*able} - {*found}) >= max(1, least) else {}


def fails(stored: Sequence[CheckResult], able: Collection[NodeId]) -> bool:
    """Whether there is anything to look at anew."""
    return any(each.verdict == "fail" and NodeId(each.where) in able for each in stored)
