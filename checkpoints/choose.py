"""Which checkpoint to restore from, and where its shards are. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from elasticd.checkpoints.line import line
from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.counting import counted
from elasticd.types import Lineage, NodeId, Point


@dataclass(frozen=True, slots=True)
class Choice:
    """A checkpoint all of whose shards are within reach.

    ``sources[i]`` are the nodes that hold shard i, in the order in which to ask them: rotated, so
    that a node that asks for all shards does not ask one holder only. ``reason`` is a sentence.
    """

    manifest: Manifest
    sources: tuple[tuple[NodeId, ...], ...]
    reason: str


def newest(
    stored: Mapping[NodeId, Iterable[Stored]],
    lineage: Lineage | None = None,
    parent: Point | None = None,
) -> Choice | None:
    """The newest checkpoint of one job whose every shard is on a living node, if there is one.

    ``stored`` is what each living node reports. With ``lineage`` only the states that this lineage
    went through count, its ancestors' included (``parent`` is where it was opened; needed while it
    has no checkpoint of its own): a lineage that lost is never promoted. Without it the furthest of
    all.
    """
    groups = _groups(stored)
    candidates = [choice for choice in map(_reach, groups) if choice is not None]
    if lineage is not None:
        known = (item.manifest for items in groups for _, item in items)
        allowed = {m.point for m in line(known, lineage, parent)}
        candidates = [c for c in candidates if c.manifest.point in allowed]
    return max(candidates, key=_rank, default=None)


def elsewhere(
    stored: Mapping[NodeId, Iterable[Stored]],
    lineage: Lineage | None = None,
    parent: Point | None = None,
) -> int:
    """The step of the newest checkpoint that only nodes which have not reported can complete: its
    manifest is here, a shard isn't, and the manifest names a holder of it that is away. -1: none.

    ``lineage`` and ``parent`` as for :func:`newest`.
    """
    groups = _groups(stored)
    allowed = None
    if lineage is not None:
        known = (item.manifest for items in groups for _, item in items)
        allowed = {m.point for m in line(known, lineage, parent)}
    steps = [
        group[0][1].manifest.step
        for group in groups
        if (allowed is None or group[0][1].manifest.point in allowed) and _waits(group, stored)
    ]
    return max(steps, default=-1)


def _waits(group: list[tuple[NodeId, Stored]], here: Collection[NodeId]) -> bool:
    """Whether some shard is on nodes alone that are not among ``here``."""
    for index in range(group[0][1].manifest.count):
        held = any(index in item.held for _, item in group)
        named = {node for _, item in group for node in item.manifest.holders[index]}
        if not held and named - set(here):
            return True
    return False


def _groups(
    stored: Mapping[NodeId, Iterable[Stored]],
) -> list[list[tuple[NodeId, Stored]]]:
    """Reports of the same files together: shards with other digests can't stand in for them."""
    groups: dict[tuple[object, ...], list[tuple[NodeId, Stored]]] = {}
    for node in sorted(stored):
        for item in stored[node]:
            key = (item.manifest.job, item.manifest.point, item.manifest.shards)
            groups.setdefault(key, []).append((node, item))
    return list(groups.values())


def _reach(group: list[tuple[NodeId, Stored]]) -> Choice | None:
    # Of manifests that differ only in their holders the one that names most says most.
    manifest = max((item.manifest for _, item in group), key=lambda m: (m.replicas, m.holders))
    sources = []
    for index in range(manifest.count):
        nodes = [node for node, item in group if index in item.held]
        if not nodes:
            return None
        turn = index % len(nodes)
        sources.append((*nodes[turn:], *nodes[:turn]))
    holders = sorted({node for nodes in sources for node in nodes})
    shards = counted(manifest.count, "shard is", "shards are all")
    reason = (
        f"step {manifest.step} of lineage {manifest.lineage} is the newest whose "
        f"{shards} within reach, on {', '.join(holders)}"
    )
    return Choice(manifest, tuple(sources), reason)


def _rank(choice: Choice) -> tuple[object, ...]:
    m = choice.manifest
    least = min(len(nodes) for nodes in choice.sources)
    return (m.step, m.lineage, m.stamp, least, m.shards[0].digest)
