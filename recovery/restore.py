"""What to resume from: the newest state that a living trainer holds, else the newest checkpoint, else the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticd.types import Lineage, NodeId, Point


@dataclass(frozen=True, slots=True)
class Resume:
    """A decision: ``point`` is resumed by ``members``; ``sources`` says per member where the state comes from."""

    point: Point
    members: tuple[NodeId, ...]
    sources: tuple[str, ...]
    reason: str


def from_survivors(
    holdings: Mapping[NodeId, Point | None],
    lineage: Lineage,
    previous: tuple[NodeId, ...],
    newcomers: tuple[NodeId, ...],
    limit: int,
) -> Resume | None:
    """Resume in place if any of ``holdings`` is a state of ``lineage``; None otherwise.

    The newest state wins, ties by stamp; whoever holds exactly that keeps it, everybody else takes it from
    a holder. ``newcomers`` hold nothing and are let in behind the survivors. ``limit`` 0: no limit.
    """
    points = {n: p for n, p in holdings.items() if p is not None and p.lineage == lineage}
    if not points:
        return None
    best = max(points.values(), key=lambda point: (point.step, point.stamp))
    holders = sorted(node for node, point in points.items() if point == best)
    order = [n for n in previous if n in points] + sorted(n for n in points if n not in previous)
    order += [n for n in newcomers if n not in points]
    if limit:
        # Never cut the only holders of the state that is resumed.
        order = (
            sorted(order, key=lambda n: n not in holders)[:limit] if len(order) > limit else order
        )
    sources = []
    for position, node in enumerate(order):
        sources.append("keep" if node in holders else f"peer:{holders[position % len(holders)]}")
    behind = [n for n in points if n not in holders]
    reason = f"{len(holders)} of {len(points)} survivors hold step {best.step}"
    if behind:
        reason += f"; {', '.join(sorted(behind))} take it from them"
    return Resume(best, tuple(order), tuple(sources), reason)
