"""What a node tells of the checkpoints that it has, where it has too many to tell of all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.types import Lineage

MOST_BYTES = 1 << 20
"""Of them in a message: about 1200 of four shards."""
_MANIFEST_BYTES, _SHARD_BYTES, _NAME_BYTES = 1024, 160, 6
"""What a manifest takes at most without its shards, a shard, and a holder beside its name."""


def tellable(stored: Sequence[Stored], most_bytes: int = MOST_BYTES) -> tuple[Stored, ...]:
    """All, or as many as may be told of, in their order.

    A restore takes the newest checkpoint whose shards are all on living nodes. So a newer one
    stands for an older one of its lineage that names the same holders and has the same shards here,
    unless another lineage was opened between the two. Of each such kind the newest come first, and
    with them the oldest and some that are ever further back: a lineage may have been opened there
    of which nothing is here.
    """
    sizes = [_bytes(each) for each in stored]
    if sum(sizes) <= most_bytes:
        return tuple(stored)
    told, left = set[int](), most_bytes
    for index in _by_use(stored):
        left -= sizes[index]
        if left < 0:
            break
        told.add(index)
    return tuple(each for index, each in enumerate(stored) if index in told)


def _by_use(stored: Sequence[Stored]) -> list[int]:
    """The places of all: what a restore needs before others comes first."""
    opened = _opened(each.manifest for each in stored)
    kinds: dict[object, list[int]] = {}
    for index in sorted(range(len(stored)), key=lambda i: -stored[i].manifest.step):
        m = stored[index].manifest
        later = sum(step < m.step for step in opened.get(m.lineage, ()))
        kinds.setdefault((m.lineage, later, stored[index].held, m.holders), []).append(index)
    ranked: list[tuple[int, int, int]] = []
    for alike in kinds.values():
        for place, index in enumerate(alike):
            oldest, doubles = index == alike[-1], place & (place - 1) == 0
            rank = min(1, place) if oldest else place.bit_length() if doubles else place
            ranked.append((rank, -stored[index].manifest.step, index))
    return [index for _, _, index in sorted(ranked)]


def _opened(manifests: Iterable[Manifest]) -> dict[Lineage, set[int]]:
    """After which steps of each lineage others were opened."""
    found: dict[Lineage, set[int]] = {}
    for parent in (m.parent for m in manifests if m.parent is not None):
        found.setdefault(parent.lineage, set()).add(parent.step)
    return found


def _bytes(stored: Stored) -> int:
    """What it takes in a message at most."""
    m = stored.manifest
    names = sum(len(name) + _NAME_BYTES for nodes in m.holders for name in nodes)
    return _MANIFEST_BYTES + m.count * _SHARD_BYTES + names
