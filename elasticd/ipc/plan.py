"""Who submits which nodes of the tree in one reduction, and how its vector is cut into chunks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgpack

from elasticd.errors import ProtocolError
from elasticd.ipc.memory import PAYLOAD_FLOATS
from elasticd.recovery import tree
from elasticd.types import Range

EXACT = "exact"
FAST = "fast"

# A gathered chunk is held as often as there are ranks, twice while the next one is under way.
_GATHERED_FLOATS = 8 * PAYLOAD_FLOATS
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


@dataclass(frozen=True, slots=True)
class Layout:
    """A plan for a vector of ``length`` float32, as the ranks must all see it.

    ``width`` parts a rank are exchanged, ``chunk`` elements at a time. ``digest`` (16 bytes) names
    all of it and travels with every chunk.
    """

    reduction: str
    length: int
    plan: ChunkPlan
    width: int
    chunk: int
    digest: bytes

    @classmethod
    def of(cls, reduction: str, length: int, plan: ChunkPlan) -> Layout:
        """Cut a vector of ``length`` elements.

        Raises:
            ValueError: in ``exact``, the parts do not cover the batch once, or are too many to fit.
        """
        width = 1
        if reduction == EXACT:
            nodes = {node: 0 for parts in plan.parts for node in parts}
            tree.finish(nodes, (0, plan.grains), lambda left, right: 0)
            if len(nodes) != sum(map(len, plan.parts)):
                raise ValueError("a node of the tree is submitted by two ranks")
            width = max(map(len, plan.parts))
        chunk = min(PAYLOAD_FLOATS, _GATHERED_FLOATS // len(plan.parts)) // width
        chunk -= chunk % _ALIGNED_FLOATS
        if not chunk:
            raise ValueError(f"{width} parts of a rank do not fit into a slot")
        packed = msgpack.packb((reduction, length, plan.grains, plan.parts))
        digest = hashlib.blake2b(packed, digest_size=16).digest()
        return cls(reduction, length, plan, width, chunk, digest)

    def encode(self) -> bytes:
        """The layout as the trainer sends it to its reducer."""
        packed: bytes = msgpack.packb((self.length, self.plan.grains, self.plan.parts))
        return packed

    @classmethod
    def decode(cls, data: bytes, reduction: str) -> Layout:
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


def _ranges(parts: Any) -> tuple[tuple[Range, ...], ...]:
    return tuple(tuple((int(start), int(end)) for start, end in nodes) for nodes in parts)
