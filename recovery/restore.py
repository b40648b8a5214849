"""What to resume from: the newest state that a living trainer holds, else the newest checkpoint,
else the start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from elasticd.types import NO_TAG, NodeId, Point, Tag


@dataclass(frozen=True, slots=True)
class Held:
    """What a trainer holds; ``entered`` is the newest world in which it had the right state."""

    point: Point | None
    entered: Tag | None


@dataclass(frozen=True, slots=True)
class Resume:
    """A decision: ``members`` resume ``point``; ``sources`` says per member where its state is."""

    point: Point
    members: tuple[NodeId, ...]
    sources: tuple[str, ...]
    reason: str


def best_held(holdings: Mapping[NodeId, Held]) -> Held | None:
    """The state to resume, None if nobody holds one.

    The newest step wins, also between two lineages that meet. Of two states of one step that in
    the newer world wins: it may be committed, while the other can only be what a member of an older
    world had applied when it was cut off.
    """
    held = [each for each in holdings.values() if each.point is not None]
    return max(held, key=_rank, default=None)


def _rank(held: Held) -> tuple[int, Tag, str, str]:
    assert held.point is not None
    return held.point.step, held.entered or NO_TAG, held.point.lineage, held.point.stamp


def keeps_lineage(last: Collection[NodeId], present: Collection[NodeId]) -> bool:
    """Whether the nodes ``present`` may go on with the lineage that the world of ``last`` advanced.

    The rest of that world may live on the other side of a partition; at most one side holds most of
    it, or half of it with the member that is first by name. The other side opens a lineage.
    """
    there = [node for node in last if node in present]
    return 2 * len(there) > len(last) or (2 * len(there) == len(last) and min(last) in there)


def from_survivors(
    holdings: Mapping[NodeId, Point | None],
    best: Point,
    previous: tuple[NodeId, ...],
    limit: int = 0,
) -> Resume:
    """Resume ``best`` in place: whoever holds just that state keeps it, all others take it from
    a holder.

    ``previous`` is the order of the last world, which survivors keep; those who hold nothing are
    let in behind them. ``limit`` is the most members; 0: no limit.
    """
    holders = sorted(n for n, p in holdings.items() if p is not None and _same(p, best))
    points = [n for n, p in holdings.items() if p is not None]
    order = [n for n in previous if n in points]
    order += sorted(n for n in points if n not in previous)
    order += sorted(n for n in holdings if n not in points)
    if limit and len(order) > limit:
        # Never cut the only holders of the state that is resumed.
        order = sorted(order, key=lambda n: n not in holders)[:limit]
    sources = tuple(
        "keep" if node in holders else f"peer:{holders[position % len(holders)]}"
        for position, node in enumerate(order)
    )
    taking = sorted(n for n in order if n in points and n not in holders)
    new = sorted(n for n in order if n not in points)
    reason = f"{', '.join(holders)} hold{'s' if len(holders) == 1 else ''} step {best.step}"
    if taking:
        reason += f"; {', '.join(taking)} held something else"
    if new:
        reason += f"; {', '.join(new)} held nothing"
    return Resume(best, tuple(order), sources, reason)


def _same(a: Point, b: Point) -> bool:
    return (a.step, a.stamp) == (b.step, b.stamp)
