"""How many nodes are to have a checkpoint, which may, and whether enough do. Asks nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.core.saving.course import Course
from elasticd.core.saving.entries import Entry
from elasticd.core.saving.shelf import Shelf
from elasticd.core.words.records import View
from elasticd.settings.job import JobSpec
from elasticd.types import NodeId


@dataclass(slots=True)
class Replicas:
    """Of one job's checkpoints, on the nodes of a view."""

    spec: JobSpec
    course: Course
    shelf: Shelf
    view: View
    domains: dict[NodeId, str] = field(default_factory=dict)
    """Failure domains, where they are known."""
    leaving: frozenset[NodeId] = frozenset()
    """Nodes that are drained: they may be switched off, so that others are to have copies."""

    def lasting(self, entry: Entry) -> frozenset[NodeId]:
        """The nodes whose copies count. A new checkpoint does not wait for more than it needs to
        survive any one node; then it is copied so that those who leave are not needed.
        """
        members = frozenset(self.view.members)
        return (members - self.leaving or members) if entry is self.shelf.home else members

    def wanted(self, entry: Entry) -> int:
        """On how many nodes; no more than can store it."""
        able = self.lasting(entry) - entry.failed.keys()
        if entry.step == self.spec.train.steps:
            # Two sides that ended a job at one state have it under two names.
            able -= entry.filing.rejected
        return min(self.spec.checkpoint.replicas, max(1, len(able)))

    def held(self, entry: Entry) -> int:
        """On how many nodes that count even the least held shard is."""
        return entry.copies.fewest(self.lasting(entry))

    def durable(self, entry: Entry) -> bool:
        """Whether a restore finds it without any one node."""
        return entry.final() >= self.wanted(entry)

    def listed(self, entry: Entry) -> bool:
        """Whether enough of the nodes that its manifest names have it."""
        return entry.named(self.lasting(entry)) >= self.wanted(entry)

    def writing(self, entry: Entry) -> list[NodeId]:
        """Members of the world that makes the checkpoint which may still be writing; once there is
        a manifest nobody is waited for."""
        world = self.course.world
        if world is None or world.generation != entry.generation or entry.manifest is not None:
            return []
        return [n for n in world.members if n in self.view.members and n not in entry.heard]

    def may_suffice(self, entry: Entry) -> bool:
        """Whether its writers alone may yet be enough, so that nobody is to copy."""
        world = self.course.world
        enough = world is not None and len(world.members) >= self.wanted(entry)
        return enough and bool(self.writing(entry))

    def able(self, entry: Entry) -> list[NodeId]:
        """Nodes that may copy shards, best first: of another failure domain, with nothing else to
        do, and whose disks were well last time."""
        world, domains = self.course.world, self.domains
        unwell = {node for other in self.shelf.all() for node in other.failed}
        writers = world.members if world is not None else ()
        used = {domains.get(node, "") for node in entry.copies.nodes()} - {""}
        able = [
            node
            for node in self.lasting(entry)
            if not entry.copies.full(node)
            and node not in entry.failed
            and node not in entry.filing.rejected
        ]
        return sorted(
            able,
            key=lambda node: (node in unwell, domains.get(node, "") in used, node in writers, node),
        )
