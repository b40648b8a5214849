"""Which node has which shard of one state."""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import dataclass, field

from elasticd.types import NodeId

Row = tuple[int, str]
"""A shard's size in bytes, and its digest."""
Names = tuple[tuple[NodeId, ...], ...]
"""Per shard the nodes that have it, in the order in which a manifest names them."""

_NOBODY: frozenset[NodeId] = frozenset()


@dataclass(slots=True)
class ShardCopies:
    """Of a state that was cut into ``count`` shards."""

    count: int
    rows: dict[int, Row] = field(default_factory=dict)
    """What each shard is, as its first writer said or the manifest says."""
    holders: dict[int, set[NodeId]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Every shard is on some node."""
        return all(map(self.holders.get, range(self.count)))

    @property
    def bytes(self) -> int:
        """Of all shards that anybody has spoken of."""
        return sum(size for size, _ in self.rows.values())

    def same(self, index: int, row: Row) -> bool:
        """Whether a shard is as whoever spoke of it first has said."""
        return self.rows.setdefault(index, row) == row

    def differs(self, index: int, row: Row) -> bool:
        """Whether somebody has said otherwise of a shard."""
        return self.rows.get(index, row) != row

    def settle(self, rows: dict[int, Row]) -> bool:
        """A manifest says what the shards are. False if something else was written already."""
        if any(self.differs(index, row) for index, row in rows.items()):
            return False
        self.rows = rows
        return True

    def add(self, node: NodeId, indices: Collection[int]) -> None:
        """``node`` has these, too."""
        for index in indices:
            self.holders.setdefault(index, set()).add(node)

    def put(self, node: NodeId, indices: Collection[int]) -> None:
        """``node`` has these and no others."""
        self.drop(node)
        self.add(node, indices)

    def lose(self, node: NodeId, index: int) -> bool:
        """``node`` has this one no more, as it should be. Whether it was the last that had it."""
        held = self.holders.get(index, set())
        last = held == {node}
        held.discard(node)
        return last

    def drop(self, node: NodeId) -> None:
        """``node`` has nothing any more."""
        for held in self.holders.values():
            held.discard(node)

    def fewest(self, nodes: Set[NodeId]) -> int:
        """On how many of ``nodes`` even the least held shard is."""
        return min(len(nodes & self.holders.get(i, _NOBODY)) for i in range(self.count))

    def named(self, names: Names, nodes: Set[NodeId]) -> int:
        """As :meth:`fewest`, where only holders count that are listed in ``names``."""
        rows = zip(names, range(self.count), strict=True)
        return min(len({*listed} & self.holders.get(i, _NOBODY) & nodes) for listed, i in rows)

    def needs(self, node: NodeId) -> bool:
        """Whether ``node`` is the only one that has some shard."""
        return any(held == {node} for held in self.holders.values())

    def has(self, node: NodeId) -> bool:
        """Whether ``node`` has any shard."""
        return any(node in held for held in self.holders.values())

    def full(self, node: NodeId) -> bool:
        """Whether ``node`` has all shards that anybody has had."""
        return all(node in held for held in self.holders.values())

    def nodes(self) -> set[NodeId]:
        """All that have some shard."""
        return {node for held in self.holders.values() for node in held}

    def listed(self) -> Names:
        return tuple(tuple(sorted(self.holders[index])) for index in range(self.count))

    def table(self) -> tuple[tuple[int, int, str], ...]:
        """Number, size and digest of each shard."""
        return tuple((index, *self.rows[index]) for index in range(self.count))
