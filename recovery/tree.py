"""The fixed binary tree in which the gradients of a global batch are added.

Floating-point addition is not associative, so bits depend on the order. Here the order belongs to
the batch, not to the world. A node is the range of grains ``(start, end)`` that it sums; the root
is ``(0, grains)``; a node of more than one grain splits after the largest power of two that is
smaller than its size, and is its left child plus its right child. Whoever computes a node gets the
same bits, so a rank may own any set of nodes that together with the other ranks' cover the batch
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from elasticd.types import Range

T = TypeVar("T")


def children(node: Range) -> tuple[Range, Range]:
    """The two halves of a node of at least two grains."""
    start, end = node
    middle = start + (1 << (end - start - 1).bit_length() - 1)
    return (start, middle), (middle, end)


def cover(ranges: Iterable[Range], grains: int) -> tuple[Range, ...]:
    """The fewest nodes that sum exactly the grains of ``ranges``, in order.

    Raises:
        ValueError: the ranges overlap or leave the batch.
    """
    runs: list[Range] = []
    for start, end in sorted(ranges):
        if start > end or start < 0 or end > grains or (runs and start < runs[-1][1]):
            raise ValueError(f"({start}, {end}) overlaps or leaves the batch of {grains} grains")
        if start == end:
            continue
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))

    return tuple(_covering((0, grains), runs))


def _covering(node: Range, runs: list[Range]) -> list[Range]:
    if any(start <= node[0] and node[1] <= end for start, end in runs):
        return [node]
    if all(end <= node[0] or node[1] <= start for start, end in runs):
        return []
    left, right = children(node)
    return _covering(left, runs) + _covering(right, runs)


def finish(parts: Mapping[Range, T], node: Range, add: Callable[[T, T], T]) -> T:
    """Add ``parts`` up to ``node``, in the tree's order.

    Raises:
        ValueError: the parts do not cover every grain of ``node`` exactly once.
    """
    # No inner function that calls itself: its cycle would keep large parts until a collection.
    used: set[Range] = set()
    result = _total(parts, node, add, used)
    if len(used) != len(parts):
        raise ValueError(f"parts overlap: {sorted(set(parts) - used)}")
    return result


def _total(parts: Mapping[Range, T], node: Range, add: Callable[[T, T], T], used: set[Range]) -> T:
    if node in parts:
        used.add(node)
        return parts[node]
    if node[1] - node[0] < 2:
        raise ValueError(f"grain {node[0]} is in no part")
    left, right = children(node)
    return add(_total(parts, left, add, used), _total(parts, right, add, used))


def merge(sums: dict[Range, T], wanted: Iterable[Range], add: Callable[[T, T], T]) -> None:
    """Replace, in place, pairs of children in ``sums`` by their parent, up to the ``wanted`` nodes.

    Called after each grain, it keeps at most one sum a level: what a rank holds while it computes
    its share.
    """
    for goal in wanted:
        _merge_below(sums, goal, add)


def _merge_below(sums: dict[Range, T], node: Range, add: Callable[[T, T], T]) -> bool:
    if node in sums:
        return True
    if node[1] - node[0] < 2:
        return False
    left, right = children(node)
    have_left = _merge_below(sums, left, add)
    have_right = _merge_below(sums, right, add)
    if not (have_left and have_right):
        return False
    sums[node] = add(sums.pop(left), sums.pop(right))
    return True
