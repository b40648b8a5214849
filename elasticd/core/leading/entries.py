"""One checkpoint on its way: which nodes have what of it, and which can't."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.words.shards import ShardsWritten
from elasticd.types import Lineage, NodeId, Point, Stamp, Tag

Key = tuple[Lineage, int, Stamp, int]

_NOBODY: frozenset[NodeId] = frozenset()


@dataclass(slots=True)
class Entry:
    """A state whose shards are being written or whose manifest is being stored, or the newest
    consistent one, of which no copy may be missing for long."""

    lineage: Lineage
    step: int
    stamp: Stamp
    count: int
    generation: Tag
    began: float
    """When the first word of it came, in monotonic seconds."""
    digest: str = ""
    """The model's; who writes the first shard tells it."""
    check: str = ""
    """Of the model, as the first writer found it."""
    sizes: dict[int, tuple[int, str]] = field(default_factory=dict)
    holders: dict[int, set[NodeId]] = field(default_factory=dict)
    manifest: Manifest | None = None
    asked: dict[NodeId, float] = field(default_factory=dict)
    """Nodes that were told to store the manifest, and when."""
    again: dict[NodeId, float] = field(default_factory=dict)
    """Nodes that have refused the manifest, alone with what they hold, and when to ask again."""
    stored: set[NodeId] = field(default_factory=set)
    heard: set[NodeId] = field(default_factory=set)
    """Nodes that have written their shards."""
    failed: dict[NodeId, str] = field(default_factory=dict)
    """Nodes that can't store their part, and why."""
    disputed: bool = False
    """The world that writes it has written something else than what a disk has of it already."""
    rejected: set[NodeId] = field(default_factory=set)
    """Nodes whose disks work and that did not take the manifest."""
    pulling: set[NodeId] = field(default_factory=set)
    stall_seconds: float = 0.0
    write_seconds: float = 0.0
    cost_seconds: float = 0.0
    step_seconds: float = 0.0
    metric: float | None = None
    mode: str = ""
    tensors: dict[int, dict[NodeId, dict[str, str]]] = field(default_factory=dict)
    """Per shard, as its writers said: the beginning of each tensor's digest."""
    models: dict[NodeId, str] = field(default_factory=dict)
    """The check of the model, as each writer found it."""

    @property
    def key(self) -> Key:
        return self.lineage, self.step, self.stamp, self.count

    @property
    def point(self) -> Point:
        return Point(self.lineage, self.step, self.stamp)

    @property
    def complete(self) -> bool:
        """Every shard is on some node, and the model's digest known."""
        return bool(self.digest) and all(map(self.holders.get, range(self.count)))

    def fewest(self, nodes: Set[NodeId]) -> int:
        """On how many of ``nodes`` even the least held shard is."""
        return min([len(nodes & self.holders.get(i, _NOBODY)) for i in range(self.count)])

    def final(self) -> int:
        """On how many nodes even the least held shard is with the manifest beside it: a shard
        without one is, after a crash, nothing that anybody knows of."""
        return self.fewest(self.stored)

    def named(self, nodes: Set[NodeId]) -> int:
        """As :meth:`final`, of those of ``nodes`` that the manifest names."""
        if self.manifest is None:
            return 0
        rows = zip(self.manifest.holders, range(self.count), strict=True)
        final = nodes & self.stored
        return min(len({*names} & self.holders.get(i, set()) & final) for names, i in rows)

    def needs(self, node: NodeId) -> bool:
        """Whether ``node`` is the only one that has some shard."""
        return any(held == {node} for held in self.holders.values())

    def has(self, node: NodeId) -> bool:
        """Whether ``node`` has any shard."""
        return any(node in held for held in self.holders.values())

    def full(self, node: NodeId) -> bool:
        """Whether ``node`` has all shards that anybody has."""
        return all(node in nodes for nodes in self.holders.values())

    def listed(self) -> tuple[tuple[NodeId, ...], ...]:
        """Per shard its holders, in the order in which a manifest names them."""
        return tuple(tuple(sorted(self.holders[index])) for index in range(self.count))

    def take(self, written: ShardsWritten) -> None:
        """What a writer measured; the slowest counts."""
        self.stall_seconds = max(self.stall_seconds, written.stall_seconds)
        self.write_seconds = max(self.write_seconds, written.write_seconds)
        self.cost_seconds = max(self.cost_seconds, written.cost_seconds)
        self.step_seconds = max(self.step_seconds, written.step_seconds)
        self.mode = written.mode or self.mode
        self.metric = written.metric if self.metric is None else self.metric
        self.digest = self.digest or written.digest
        self.check = self.check or written.check

    def agrees(self, written: ShardsWritten) -> bool:
        """Whether a writer's model is the first one's, as far as it says. With a manifest it is
        that one's model which counts."""
        if written.digest and written.digest != self.digest:
            return False
        return self.manifest is not None or written.check in ("", self.check)

    def found(self, node: NodeId, item: Stored | None) -> None:
        """``node`` says what it has of it, final; None: nothing any more."""
        if item is None:
            if node in self.stored:
                self.forget(node)
            return
        self.stored.add(node)
        self.asked.setdefault(node, self.began)
        for index in range(self.count):
            if index in item.held:
                self.holders.setdefault(index, set()).add(node)
            else:
                self.holders.get(index, set()).discard(node)

    def forget(self, node: NodeId) -> None:
        """A node is gone, or was started again and swept its disk."""
        for holders in self.holders.values():
            holders.discard(node)
        for nodes in (self.stored, self.heard, self.pulling, self.rejected):
            nodes.discard(node)
        self.asked.pop(node, None)
        self.again.pop(node, None)
        self.failed.pop(node, None)

    def odd(self, index: int, node: NodeId) -> NodeId:
        """Who differs from the most others: in the model's digest, or in shard ``index``'s
        tensors. Of two that are alone with each other ``node``, which came later."""
        tensors = self.tensors.get(index, {})

        def alone(one: NodeId) -> tuple[int, int]:
            models = sum(d != self.models.get(one, d) for d in self.models.values())
            return models, sum(own != tensors.get(one) for own in tensors.values())

        return max(sorted({*tensors, node}), key=lambda one: (alone(one), one == node))

    def first_difference(self, index: int, node: NodeId, other: NodeId | None) -> str | None:
        """The first tensor of a shard in which two writers differ, if both said enough."""
        mine = self.tensors.get(index, {}).get(node, {})
        theirs = self.tensors.get(index, {}).get(other, {}) if other is not None else {}
        names = sorted(mine.keys() | theirs.keys()) if mine and theirs else []
        return next((name for name in names if mine.get(name) != theirs.get(name)), None)
