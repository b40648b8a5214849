"""What to resume from: the newest state that a living trainer holds, else the newest checkpoint,
else the start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from elasticd.types import NO_TAG, NodeId, Point, Stamp, Tag


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


@dataclass(frozen=True, slots=True)
class Order:
    """Members of the last world keep its order; those who hold nothing are let in behind them."""

    previous: tuple[NodeId, ...] = ()
    limit: int = 0
    """The most members; 0: no limit."""

    def of(
        self, holdings: Mapping[NodeId, Point | None], holders: Collection[NodeId]
    ) -> list[NodeId]:
        """The members of the next world. The only holders of its state are never cut."""
        points = [n for n, p in holdings.items() if p is not None]
        order = [n for n in self.previous if n in points]
        order += sorted(n for n in points if n not in self.previous)
        order += sorted(n for n in holdings if n not in points)
        if self.limit and len(order) > self.limit:
            order = sorted(order, key=lambda n: n not in holders)[: self.limit]
        return order


def from_survivors(
    holdings: Mapping[NodeId, Point | None],
    best: Point,
    order: Order,
    gives: Mapping[NodeId, Collection[Stamp]],
    replays: Collection[NodeId],
) -> Resume:
    """Resume ``best``: whoever holds just that state keeps it, all others take it from a holder.

    ``gives`` names the states from which a holder has every later update. A member in one of
    those takes and applies the updates, if it is among ``replays``; any other takes the whole
    state.
    """
    holders = sorted(n for n, p in holdings.items() if p is not None and _same(p, best))
    members = order.of(holdings, holders)
    sources, behind = [], []
    for position, node in enumerate(members):
        turned = [holders[(position + n) % len(holders)] for n in range(len(holders))]
        point = holdings[node]
        able = [h for h in turned if point is not None and point.stamp in gives.get(h, ())]
        if node in holders:
            sources.append("keep")
        elif able and node in replays:
            behind.append(node)
            sources.append(f"updates:{able[0]}")
        else:
            sources.append(f"peer:{turned[0]}")
    other = [n for n in members if n not in holders and n not in behind]
    return Resume(best, tuple(members), tuple(sources), _reason(holdings, best, behind, other))


def _reason(
    holdings: Mapping[NodeId, Point | None],
    best: Point,
    behind: Sequence[NodeId],
    other: Sequence[NodeId],
) -> str:
    holders = sorted(n for n, p in holdings.items() if p is not None and _same(p, best))
    reason = f"{', '.join(holders)} hold{'s' if len(holders) == 1 else ''} step {best.step}"
    taking = sorted(n for n in other if holdings[n] is not None)
    new = sorted(n for n in other if holdings[n] is None)
    if behind:
        steps = "; ".join(
            f"{n} applies the updates since step {p.step}"
            for n in sorted(behind)
            if (p := holdings[n]) is not None
        )
        reason += f"; {steps}"
    if taking:
        reason += f"; {', '.join(taking)} held something else"
    if new:
        reason += f"; {', '.join(new)} held nothing"
    return reason


def _same(a: Point, b: Point) -> bool:
    return (a.step, a.stamp) == (b.step, b.stamp)
