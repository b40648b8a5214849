"""Who submits which nodes of the tree in one reduction, and how its vector is cut into chunks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgpack

from elasticd.errors import ProtocolError
from elasticd.ipc.memoryfile import PAYLOAD_FLOATS
from elasticd.recovery import tree, walk
from elasticd.types import Range

EXACT = "exact"
FAST = "fast"

WALKING_FLOATS = 128 << 10
"""A smaller chunk is gathered also where sums are made along the ring: that takes more messages,
one after the other."""
# A reducer holds what it gathers for two chunks at a time.
GATHERED_FLOATS = 2 * PAYLOAD_FLOATS
_ALIGNED_FLOATS = 1024


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """What the ranks of a world submit in one reduction.

    ``parts`` has, per rank, the nodes of the tree over ``grains`` grains
    (:func:`elasticd.recovery.tree.cover`) whose sums it submits, possibly none. In ``fast`` each
    rank submits one sum, whatever its ranges say.
    """

    grains: int
    parts: tuple[tuple[Range, ...], ...]

    def bytes_sent(self, reduction: str, length: int, *, walks: bool = False) -> int:
        """What a rank sends to reduce a vector of ``length`` float32; where ranks differ, the most
        that one does. ``walks``: exact sums are made along the ring."""
        size = len(self.parts)
        if reduction == FAST:
            return 2 * (size - 1) * 4 * length // size
        if walks and length >= WALKING_FLOATS:
            return _most_sections(self) * 4 * length // size
        width = max((len(own) for own in self.parts), default=0)
        return (size - 1) * width * 4 * length


@dataclass(frozen=True, slots=True)
class VectorLayout:
    """A plan for a vector of ``length`` float32, as the ranks must all see it.

    ``width`` parts a rank are exchanged, ``chunk`` elements at a time; part i of rank r is number
    ``r * width + i``. ``additions`` finish the tree: of each pair the second number is added to the
    first, whose place the sum takes; after the last, ``total`` has the whole. ``digest`` (16 bytes)
    names all of it and travels with every chunk.
    """

    reduction: str
    length: int
    plan: ChunkPlan
    width: int
    chunk: int
    additions: tuple[tuple[int, int], ...]
    total: int
    digest: bytes

    @classmethod
    def of(cls, reduction: str, length: int, plan: ChunkPlan) -> VectorLayout:
        """Cut a vector of ``length`` elements.

        Raises:
            ValueError: in ``exact``, the parts do not cover the batch once, or are too many to fit.
        """
        width, total = 1, 0
        additions: list[tuple[int, int]] = []
        if reduction == EXACT:
            width = max(map(len, plan.parts), default=0)
            additions, total = _additions(plan, width)
        most = min(PAYLOAD_FLOATS, GATHERED_FLOATS // len(plan.parts)) // width
        if most < _ALIGNED_FLOATS:
            raise ValueError(f"{width} parts of a rank do not fit into a slot")
        chunk = _even_chunk(length, most - most % _ALIGNED_FLOATS)
        packed = msgpack.packb((reduction, length, plan.grains, plan.parts))
        digest = hashlib.blake2b(packed, digest_size=16).digest()
        return cls(reduction, length, plan, width, chunk, tuple(additions), total, digest)

    def encode(self) -> bytes:
        """The layout as the trainer sends it to its reducer."""
        packed: bytes = msgpack.packb((self.length, self.plan.grains, self.plan.parts))
        return packed

    @classmethod
    def decode(cls, data: bytes, reduction: str) -> VectorLayout:
        """Inverse of :meth:`encode`.

        Raises:
            ProtocolError: the bytes are no plan.
        """
        try:
            length, grains, parts = msgpack.unpackb(data, use_list=False)
            return cls.of(reduction, length, ChunkPlan(grains, _ranges(parts)))
        except (ValueError, TypeError) as error:
            raise ProtocolError(f"a plan cannot be used: {error}") from error

    @property
    def chunks(self) -> int:
        """How many chunks make the vector."""
        return -(-self.length // self.chunk)

    def bounds(self, bucket: int) -> tuple[int, int]:
        """First and last (excluded) element of chunk ``bucket``."""
        start = bucket * self.chunk
        return start, min(start + self.chunk, self.length)


@lru_cache(maxsize=16)
def _most_sections(plan: ChunkPlan) -> int:
    return max(walk.sections_sent(plan.parts, plan.grains))


def _even_chunk(length: int, most: int) -> int:
    count = max(1, -(-length // most))
    chunk = -(-length // count)
    return max(_ALIGNED_FLOATS, chunk + -chunk % _ALIGNED_FLOATS)


def _additions(plan: ChunkPlan, width: int) -> tuple[list[tuple[int, int]], int]:
    numbers = {
        node: rank * width + index
        for rank, nodes in enumerate(plan.parts)
        for index, node in enumerate(nodes)
    }
    if len(numbers) != sum(map(len, plan.parts)):
        raise ValueError("a node of the tree is submitted twice")
    additions: list[tuple[int, int]] = []

    def add(left: int, right: int) -> int:
        additions.append((left, right))
        return left

    return additions, tree.finish(numbers, (0, plan.grains), add)


def _ranges(parts: Any) -> tuple[tuple[Range, ...], ...]:
    return tuple(tuple((int(start), int(end)) for start, end in nodes) for nodes in parts)
