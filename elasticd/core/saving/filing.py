"""The manifest of one checkpoint, and which nodes were asked to store it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from elasticd.checkpoints.manifest import Manifest
from elasticd.types import NodeId


@dataclass(slots=True)
class Filing:
    """Nothing of it begins before there is a manifest."""

    manifest: Manifest | None = None
    asked: dict[NodeId, float] = field(default_factory=dict)
    """Nodes that were told to store it, and when."""
    again: dict[NodeId, float] = field(default_factory=dict)
    """Nodes that have refused it, alone with what they hold, and when to ask again."""
    stored: set[NodeId] = field(default_factory=set)
    rejected: set[NodeId] = field(default_factory=set)
    """Nodes whose disks work and that did not take it."""

    def say(self, manifest: Manifest) -> None:
        """This is the one that disks have."""
        self.manifest = manifest

    def has(self, node: NodeId) -> None:
        """``node`` has stored it."""
        self.stored.add(node)

    def had(self, node: NodeId, since: float) -> None:
        """``node`` has stored it already, though nobody has asked it later than ``since``."""
        self.stored.add(node)
        self.asked.setdefault(node, since)

    def reject(self, node: NodeId) -> None:
        """``node`` has not taken it."""
        self.rejected.add(node)

    def wrote(self, node: NodeId) -> None:
        """``node`` has other shards now than when it did not take it."""
        if node in self.rejected:
            self.forget(node)

    def write(self, manifest: Manifest) -> None:
        """It says something else than before: all are asked anew."""
        self.manifest, self.asked, self.stored = manifest, {}, set()

    def ask(self, node: NodeId, now: float) -> bool:
        """Whether ``node`` is to be told to store it now."""
        if node in self.asked or self.again.get(node, 0.0) > now:
            return False
        self.asked[node] = now
        return True

    def put_off(self, node: NodeId, until: float) -> bool:
        """Ask ``node`` again, later. True if this is its first refusal."""
        first = node not in self.again
        del self.asked[node]
        self.again[node] = until
        return first

    def open(self) -> Iterator[tuple[NodeId, float]]:
        """Who has not stored it yet, and when they were asked."""
        return ((node, at) for node, at in self.asked.items() if node not in self.stored)

    def forget_unanswered(self) -> None:
        """A new view: who was asked and has not answered may not have heard."""
        self.asked = {node: at for node, at in self.asked.items() if node in self.stored}

    def forget(self, node: NodeId) -> None:
        self.stored.discard(node)
        self.rejected.discard(node)
        self.asked.pop(node, None)
        self.again.pop(node, None)
