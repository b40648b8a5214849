"""The sums of the fixed tree, made along a ring: which of them travel, and who adds which.

A vector is cut into as many sections as there are ranks. Section s starts at rank s and walks to
the right. Each rank adds its own parts wherever the tree (:mod:`elasticd.recovery.tree`) allows it
and sends on what is left, so few sums travel: like the digits of a binary counter. The last rank
of the walk has the whole sum, which then goes around once more. Who adds two nodes, and when,
changes no bit: the pairs are those of the tree.

All of it follows from the parts of each rank, so ranks that know them agree on every message.

:func:`chain` is for sums whose bits may depend on the world: each rank adds to what has come, and
one sum travels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from elasticd.recovery.tree import children
from elasticd.types import Range

Parts = Sequence[Sequence[Range]]
"""Per rank the nodes that it submits; together they are the batch, once."""


@dataclass(frozen=True, slots=True)
class Hop:
    """What one rank does with one section when that comes by.

    Attributes:
        section: its number.
        own: the nodes that this rank has itself, in their order; none where its own are added
            already.
        takes: the nodes whose sums come from the left, in the order in which they come.
        adds: pairs of children, left and right, to be added in this order; each makes its parent.
        sends: the nodes whose sums go to the right, in this order.
        whole: the sum of the whole batch is here.
    """

    section: int
    own: tuple[Range, ...]
    takes: tuple[Range, ...]
    adds: tuple[tuple[Range, Range], ...]
    sends: tuple[Range, ...]
    whole: bool


def hops(parts: Parts, grains: int, rank: int) -> tuple[Hop, ...]:
    """What ``rank`` does, in order. All ranks begin at once, and what one sends in a hop its right
    neighbour takes in the next.

    Raises:
        ValueError: the parts do not cover the batch.
    """
    size, root = len(parts), (0, grains)
    family = _family(parts, grains)
    first = [
        next(islice(_walk(parts, family, (rank - hop) % size), hop, None)) for hop in range(size)
    ]
    if first[-1].sends != (root,):
        raise ValueError(f"the parts make {first[-1].sends}, not all of {grains} grains")
    return (*first, *_around(size, root, rank))


def chain(size: int, rank: int) -> tuple[Hop, ...]:
    """As :func:`hops`, of a vector of which each rank has one sum. A section's nodes are the ranks
    in the order of its walk."""

    def added(hop: int) -> Hop:
        before, own, now = (0, hop), (hop, hop + 1), (0, hop + 1)
        come = hop > 0
        section, adds = (rank - hop) % size, ((before, own),) if come else ()
        return Hop(section, (own,), (before,) if come else (), adds, (now,), now[1] == size)

    return (*map(added, range(size)), *_around(size, (0, size), rank))


def _around(size: int, root: Range, rank: int) -> Iterator[Hop]:
    """The hops of whole sums, which all ranks but the last take and send on."""
    for hop in range(size, 2 * size - 1):
        sends = (root,) if hop < 2 * size - 2 else ()
        yield Hop((rank - hop) % size, (), (root,), (), sends, whole=True)


def sections_sent(parts: Parts, grains: int) -> tuple[int, ...]:
    """How many sections' worth of sums each rank sends in all. A ring all-reduce: 2 (N - 1)."""
    size, family = len(parts), _family(parts, grains)
    sent = [size - 2] * size  # whole sums that are not its own, to all but who made them
    for section in range(size):
        for hop, each in enumerate(_walk(parts, family, section)):
            sent[(section + hop) % size] += len(each.sends)
    return tuple(sent)


_Family = dict[Range, tuple[Range, Range, Range]]
"""A node's parent, and that one's children."""


def _family(parts: Parts, grains: int) -> _Family:
    submitted = {node for nodes in parts for node in nodes}
    family: _Family = {}
    above = [(0, grains)]
    while above:
        node = above.pop()
        if node in submitted or node[1] - node[0] < 2:
            continue
        left, right = children(node)
        family[left] = family[right] = (node, left, right)
        above += [left, right]
    return family


def _walk(parts: Parts, family: _Family, section: int) -> Iterator[Hop]:
    """The hops of a section, which starts at the rank of its number, until it is whole."""
    size, held = len(parts), set[Range]()
    for hop in range(size):
        takes, adds = tuple(sorted(held)), list[tuple[Range, Range]]()
        own = tuple(parts[(section + hop) % size])
        for node in own:
            _join(held, node, family, adds)
        yield Hop(section, own, takes, tuple(adds), tuple(sorted(held)), hop == size - 1)


def _join(held: set[Range], node: Range, family: _Family, adds: list[tuple[Range, Range]]) -> None:
    while node in family:
        parent, left, right = family[node]
        sibling = right if node == left else left
        if sibling not in held:
            break
        held.remove(sibling)
        adds.append((left, right))
        node = parent
    held.add(node)
