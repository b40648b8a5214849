"""Who watches whom in a view that is too large for everyone to hear everyone.

After Rapid (Suresh et al., USENIX ATC 2018): the nodes stand on several rings, on each in another
order that only their names decide, and everyone watches its neighbours on both sides of each ring.
Together the rings are an expander: a random set of losses leaves it connected, and every node has
watchers in nearly every part of it. Pure: whoever knows the members knows the overlay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from elasticd.types import NodeId

FULL_MESH_NODES = 64
"""Up to so many members everyone hears everyone."""
RINGS = 5
"""Each node has twice as many watchers, or a few less where it meets one on two rings."""
_BYTES = 8


@dataclass(frozen=True, slots=True)
class Overlay:
    """``rings`` and the place of each node on each of them."""

    rings: tuple[tuple[NodeId, ...], ...]
    places: tuple[Mapping[NodeId, int], ...]

    def neighbours(self, node: NodeId) -> frozenset[NodeId]:
        """Whom ``node`` watches, who are the same as those that watch it; nobody if it is no
        member."""
        found = set()
        for ring, places in zip(self.rings, self.places, strict=True):
            at = places.get(node)
            if at is not None:
                found |= {ring[at - 1], ring[(at + 1) % len(ring)]}
        return frozenset(found - {node})


@lru_cache(maxsize=32)
def overlay(members: tuple[NodeId, ...]) -> Overlay:
    """The overlay of these members, the same on every node."""
    rings = tuple(
        tuple(sorted(members, key=lambda node: (_places(node)[number], node)))
        for number in range(RINGS)
    )
    return Overlay(rings, tuple({node: at for at, node in enumerate(ring)} for ring in rings))


@lru_cache(maxsize=8192)
def _places(node: NodeId) -> tuple[bytes, ...]:
    digest = blake2b(node.encode(), digest_size=RINGS * _BYTES).digest()
    return tuple(digest[at : at + _BYTES] for at in range(0, len(digest), _BYTES))
