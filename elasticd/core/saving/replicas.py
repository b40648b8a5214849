"""How many nodes are to have a checkpoint, which may, and whether enough do. Asks nobody."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticd.core.jobs.nodes import ALL_ALIKE, NodeDuties
from elasticd.core.saving.checkpoint import Checkpoint
from elasticd.core.saving.descent import Descent
from elasticd.core.saving.shelf import Shelf
from elasticd.core.words.records import View
from elasticd.settings.job import JobSpec
from elasticd.types import NodeId

_AT_ONCE = 2
"""Of so many checkpoints at most a node copies shards at a time: more would only take longer."""


@dataclass(slots=True)
class Replicas:
    """Of one job's checkpoints, on the nodes of a view."""

    spec: JobSpec
    descent: Descent
    shelf: Shelf
    view: View
    domains: dict[NodeId, str] = field(default_factory=dict)
    """Failure domains, where they are known."""
    standing: NodeDuties = ALL_ALIKE
    """Of nodes that leave others are to have copies, since they may be switched off. Stores are to
    have them first, witnesses never."""

    def follow(self, view: View) -> None:
        """Another view is ours."""
        self.view = view

    def locate(self, node: NodeId, domain: str) -> None:
        """What fails together with ``node``, if that is known."""
        self.domains[node] = domain

    def place(self, standing: NodeDuties) -> None:
        """These are drained now, or do less than others."""
        self.standing = standing

    @property
    def places(self) -> frozenset[NodeId]:
        """The nodes that may hold anything of a checkpoint."""
        return frozenset(self.view.members) - self.standing.witnesses

    def written(self, members: Iterable[NodeId]) -> int:
        """On how many of its members a world writes each shard: the stores copy the rest, but for
        those that may fail together with a member while there are others that don't."""
        domains = self.domains
        beside = {domains.get(node, "") for node in members}
        stores = (self.standing.stores - self.standing.leaving).intersection(self.view.members)
        apart = [
            node
            for node in stores
            if node in domains and (domains[node] not in beside - {""} or len(beside) == 1)
        ]
        return max(1, self.spec.checkpoint.replicas - len(apart))

    def lasting(self, checkpoint: Checkpoint) -> frozenset[NodeId]:
        """The nodes whose copies count. A new checkpoint does not wait for more than it needs to
        survive any one node; then it is copied so that those who leave are not needed.
        """
        places = self.places
        leaving = self.standing.leaving
        return (places - leaving or places) if checkpoint is self.shelf.home else places

    def wanted(self, checkpoint: Checkpoint) -> int:
        """On how many nodes; no more than can store it."""
        able = self.lasting(checkpoint) - checkpoint.failed.keys()
        if self._is_end(checkpoint):
            # Two sides that ended a job at one state have it under two names.
            able -= checkpoint.filing.rejected - self._writes_again(checkpoint)
        return min(self.spec.checkpoint.replicas, max(1, len(able)))

    def _is_end(self, checkpoint: Checkpoint) -> bool:
        """Whether the job ends there, as far as is known."""
        return checkpoint.step == self.descent.ends_at(self.spec.train.steps)

    def _writes_again(self, checkpoint: Checkpoint) -> set[NodeId]:
        """Members that had written a state of their own, and begin now with the one that counts."""
        world = self.descent.world
        if world is None or (world.step, world.stamp) != (checkpoint.step, checkpoint.stamp):
            return set()
        return set(world.takers)

    def held(self, checkpoint: Checkpoint) -> int:
        """On how many nodes that count even the least held shard is."""
        return checkpoint.copies.fewest(self.lasting(checkpoint))

    def durable(self, checkpoint: Checkpoint) -> bool:
        """Whether a restore finds it without any one node."""
        return checkpoint.final() >= self.wanted(checkpoint)

    def listed(self, checkpoint: Checkpoint) -> bool:
        """Whether enough of the nodes that its manifest names have it."""
        return checkpoint.named(self.lasting(checkpoint)) >= self.wanted(checkpoint)

    def writing(self, checkpoint: Checkpoint) -> list[NodeId]:
        """Members of the world that makes the checkpoint which may still be writing, in the next
        world too; once there is a manifest nobody is waited for."""
        if checkpoint.manifest is not None:
            return []
        writers = self.descent.stayed.get(checkpoint.generation, ())
        return sorted(n for n in writers if n in self.view.members and n not in checkpoint.heard)

    def able(self, checkpoint: Checkpoint) -> list[NodeId]:
        """Nodes that may copy shards, best first: whose disks were well last time, of another
        failure domain, that had the time to write their own, that never train, that have nothing
        else to do."""
        world, domains = self.descent.world, self.domains
        unwell = {node for other in self.shelf.all() for node in other.failed}
        writers = world.members if world is not None else ()
        used = {domains.get(node, "") for node in checkpoint.copies.nodes()} - {""}
        able = [
            node
            for node in self.lasting(checkpoint)
            if not checkpoint.copies.full(node)
            and node not in checkpoint.failed
            and node not in checkpoint.filing.rejected
            and (self._is_end(checkpoint) or self._copies(node) < _AT_ONCE)
        ]
        return sorted(
            able,
            key=lambda node: (
                node in unwell,
                domains.get(node, "") in used,
                checkpoint.skipped(node),
                node not in self.standing.stores,
                node in writers,
                node,
            ),
        )

    def _copies(self, node: NodeId) -> int:
        """Of how many checkpoints ``node`` copies shards now."""
        return sum(node == each for one in self.shelf.all() for each, _ in one.copying())

    def worth(self, checkpoint: Checkpoint) -> tuple[int, int]:
        """Of too many unfinished checkpoints those go first that have the least. Nothing is worth
        what can't become whole, and little what nobody has anything of. Of what nobody works on
        the newest counts. Of what nodes work on the oldest does: where that takes longer than until
        the next few, there would never be an end of it. Nobody writes a job's last state again."""
        step, writing = checkpoint.step, self.writing(checkpoint)
        if self._is_end(checkpoint):
            return 4, step
        if checkpoint.manifest is None:
            if not (writing or checkpoint.copies.whole):
                return 0, step
            if not checkpoint.copies.nodes():
                return 1, step
        if writing or checkpoint.copying() or checkpoint.unanswered():
            return 3, -step
        return 2, step
