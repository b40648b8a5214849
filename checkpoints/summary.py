"""What the nodes have of a job's checkpoints, joined: one row for each. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class Row:
    """One checkpoint; ``present[i]`` are the nodes that have shard i now."""

    manifest: Manifest
    present: tuple[tuple[NodeId, ...], ...]
    nodes: tuple[NodeId, ...]
    """That have its manifest."""

    @property
    def consistent(self) -> bool:
        """Whether every shard is within reach."""
        return all(self.present)

    @property
    def replicas(self) -> int:
        """On how many nodes even the least held shard is now."""
        return min(len(nodes) for nodes in self.present)

    @property
    def alone(self) -> frozenset[NodeId]:
        """Nodes each of which is the only one to have some shard."""
        return frozenset(nodes[0] for nodes in self.present if len(nodes) == 1)

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """Nodes that have any shard of it."""
        return tuple(sorted({node for nodes in self.present for node in nodes}))

    @property
    def absent(self) -> tuple[NodeId, ...]:
        """Nodes that its manifest names and that said nothing of it."""
        named = {node for nodes in self.manifest.holders for node in nodes}
        return tuple(sorted(named - set(self.nodes)))

    @property
    def whole(self) -> bool:
        """Whether every node that its manifest names has all that it was to hold."""
        return not self.absent and all(
            set(named) <= set(has)
            for named, has in zip(self.manifest.holders, self.present, strict=True)
        )

    def plain(self) -> dict[str, Any]:
        """As ``checkpoints list --json`` shows it."""
        m = self.manifest
        return {
            "step": m.step,
            "lineage": m.lineage,
            "stamp": m.stamp,
            "parent": m.parent and {"lineage": m.parent.lineage, "step": m.parent.step},
            "bytes": m.bytes,
            "shards": m.count,
            "replicas": self.replicas,
            "made_replicas": m.replicas,
            "consistent": self.consistent,
            "holders": list(self.holders),
            "absent": list(self.absent),
            "digest": m.digest,
            "samples": m.samples,
            "created": m.created_seconds,
            "algorithm": "blake3" if ":" in m.shards[0].digest else "blake2b",
        }


def rows(stored: Mapping[NodeId, Iterable[Stored]]) -> list[Row]:
    """One row for each checkpoint of one job, by step. Cuts of one state that differ are two."""
    groups: dict[tuple[object, ...], list[tuple[NodeId, Stored]]] = {}
    for node in sorted(stored):
        for item in stored[node]:
            key = (item.manifest.point, item.manifest.shards)
            groups.setdefault(key, []).append((node, item))
    found = []
    for items in groups.values():
        made = max((item.manifest for _, item in items), key=lambda m: (m.replicas, m.holders))
        present = tuple(
            tuple(node for node, item in items if index in item.held) for index in range(made.count)
        )
        found.append(Row(made, present, tuple(node for node, _ in items)))
    return sorted(found, key=lambda row: (row.manifest.step, row.manifest.lineage))


def never_completed(
    rows: Collection[Row], announced: Collection[tuple[int, int]] | None
) -> list[Row]:
    """Those below the newest consistent one that were never consistent: everything was killed
    before all nodes had their part, so nothing of them is lost.

    ``announced`` are the generation and step of each checkpoint that was called consistent. None:
    that is not known of all, so it may have been any of them.
    """
    if announced is None:
        return []

    def was_announced(row: Row) -> bool:
        return (row.manifest.generation.counter, row.manifest.step) in announced

    sure = (row.manifest.step for row in rows if row.consistent and was_announced(row))
    newest = max(sure, default=-1)
    return [
        row
        for row in rows
        if row.manifest.step < newest and not row.whole and not was_announced(row)
    ]
