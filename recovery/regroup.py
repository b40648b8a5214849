"""Who computes which grains, now and from the next step on.

The sum of a step has the same bits whoever computes a grain (:mod:`elasticd.recovery.tree`), so
shares are free to follow the world. Nobody computes more than the others need to wait for, and
cuts fall where a share is few nodes of the tree, because each node is one more vector to exchange.
Where the wire was measured, work and wire are one cost: a rank may compute more than the others if
that saves them more of the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from elasticd.recovery import walk
from elasticd.recovery.tree import cover
from elasticd.types import NodeId, Range

Shares = tuple[tuple[Range, ...], ...]
"""Per rank the ranges of grains that it computes; together they are the batch, once."""

_SEARCHED_GRAINS = 256
"""Above this many grains a search for cheap cuts costs more than it saves; plain equal cuts
serve."""


_SLACK = 1.05
"""A step may take so much longer than it has to if that saves vectors to exchange."""
_WEIGHED_GRAINS = 64
"""Up to so many grains work and wire are weighed; the search takes milliseconds then."""
_SLACKS = (1.1, 1.2, 1.35, 1.5, 2.0)
"""Looked at besides, where it is known what vectors cost."""


@lru_cache(maxsize=256)
def shares(
    grains: int, size: int, seconds: tuple[float, ...] = (), wire_seconds: float = 0.0
) -> Shares:
    """Contiguous shares for ``size`` ranks: the slowest done as early as can be, then few tree
    nodes.

    Args:
        grains: of a batch.
        size: of the world.
        seconds: that a grain takes each rank, relative to each other; by default all are as fast.
        wire_seconds: that a rank takes to send one vector, in the same measure; 0: not known.
            If it is known the sum of work and wire is what is to be short.
    """
    pace = seconds or (1.0,) * size
    usual = _SLACK if len(set(pace)) > 1 else 1.0
    slacks = (usual, *_SLACKS) if wire_seconds > 0 and grains <= _WEIGHED_GRAINS else (usual,)
    found = (_shares(_cuts(grains, pace, slack)) for slack in slacks)
    return min(found, key=lambda dealt: step_seconds(dealt, pace, wire_seconds))


def step_seconds(dealt: Shares, seconds: Sequence[float], wire_seconds: float = 0.0) -> float:
    """What all wait for: the slowest member's share, and the wire. As for :func:`shares`."""
    work = max(_count(share) * own for share, own in zip(dealt, seconds, strict=True))
    return work + wire_seconds * vectors_sent(dealt) if wire_seconds > 0 else work


@lru_cache(maxsize=256)
def vectors_sent(dealt: Shares) -> float:
    """How many vectors the rank sends in a step that sends the most, where sums walk along the
    ring."""
    grains = sum(map(_count, dealt))
    parts = [cover(ranges, grains) for ranges in dealt]
    return max(walk.sections_sent(parts, grains)) / len(dealt)


def _count(share: Sequence[Range]) -> int:
    return sum(end - start for start, end in share)


def _shares(cuts: Sequence[int]) -> Shares:
    return tuple(((start, end),) if end > start else () for start, end in pairwise(cuts))


def _cuts(grains: int, seconds: tuple[float, ...], slack: float) -> tuple[int, ...]:
    if grains > _SEARCHED_GRAINS:
        speeds = [1 / each for each in seconds]
        sums = [sum(speeds[:rank]) for rank in range(len(speeds) + 1)]
        return tuple(int(grains * part / sums[-1] + 1e-9) for part in sums)
    most = _most(grains, seconds, slack)
    # best[position]: (most nodes of one rank, nodes in all, cuts so far), after each rank in turn.
    best: dict[int, tuple[int, int, tuple[int, ...]]] = {0: (0, 0, (0,))}
    for rank, largest in enumerate(most):
        reached: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for start, (nodes_most, total, cuts) in best.items():
            for end in range(start, min(start + largest, grains) + 1):
                if grains - end > sum(most[rank + 1 :]):
                    continue
                nodes = _nodes(start, end, grains)
                option = (max(nodes_most, nodes), total + nodes, (*cuts, end))
                if end not in reached or option < reached[end]:
                    reached[end] = option
        best = reached
    return best[grains][2]


@lru_cache(maxsize=1 << 16)
def _nodes(start: int, end: int, grains: int) -> int:
    return len(cover([(start, end)], grains))


def _most(grains: int, seconds: tuple[float, ...], slack: float) -> list[int]:
    """How many grains each rank can compute in ``slack`` times the shortest step that is
    possible."""
    ends = sorted({count * each for each in seconds for count in range(1, grains + 1)})
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if sum(_fitting(ends[middle], seconds)) >= grains:
            high = middle
        else:
            low = middle + 1
    return _fitting(slack * ends[low], seconds)


def _fitting(end: float, seconds: tuple[float, ...]) -> list[int]:
    return [int(end / each + 1e-9) for each in seconds]


def reshare(
    grains: int,
    kept: Mapping[NodeId, Sequence[Range]],
    members: Sequence[NodeId],
    seconds: tuple[float, ...] = (),
) -> Shares:
    """Shares of a step that was cut: members keep what they had begun, the rest is dealt out
    evenly.

    ``kept`` names members that were in the world whose step was cut, with their share of it.
    ``seconds`` as for :func:`shares`.
    """
    owned = {node: list(kept.get(node, ())) for node in members}
    if not any(owned.values()):
        return shares(grains, len(members), seconds)
    slowness = dict(zip(members, seconds or (1.0,) * len(members), strict=True))
    missing = _complement((part for ranges in owned.values() for part in ranges), grains)
    for grain_range in missing:
        for grain in range(*grain_range):
            # Neighbouring grains go to the same rank while it is not ahead of the others: fewer
            # tree nodes.
            target = min(members, key=lambda node: _weight(owned[node], grain, slowness[node]))
            owned[target].append((grain, grain + 1))
    return tuple(_joined(owned[node]) for node in members)


def _weight(ranges: Sequence[Range], grain: int, slowness: float) -> tuple[float, int]:
    held = _count(ranges)
    adjacent = any(end == grain or start == grain + 1 for start, end in ranges)
    return (held + 1) * slowness, 0 if adjacent else 1


def _complement(ranges: Iterable[Range], grains: int) -> list[Range]:
    missing, position = [], 0
    for start, end in sorted(ranges):
        if start > position:
            missing.append((position, start))
        position = max(position, end)
    if position < grains:
        missing.append((position, grains))
    return missing


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    result: list[Range] = []
    for start, end in sorted(ranges):
        if result and result[-1][1] == start:
            result[-1] = (result[-1][0], end)
        elif end > start:
            result.append((start, end))
    return tuple(result)


def check_shares(grains: int, dealt: Shares) -> None:
    """Raise ValueError unless every grain is owned exactly once (invariant 2)."""
    position = 0
    for start, end in sorted(part for ranges in dealt for part in ranges):
        if start != position:
            raise ValueError(f"grain {min(start, position)} is owned twice or never")
        position = end
    if position != grains:
        raise ValueError(f"grains from {position} on are owned by nobody")
