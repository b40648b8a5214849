"""What a member and the leader say to each other about checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticd.checkpoints.manifest import Manifest
from elasticd.types import JobId, Lineage, NodeId, ShardCount, SnapshotModeIfAny, Stamp, Tag


@dataclass(frozen=True, slots=True)
class Digest:
    """The check of a committed step's state, as the sender holds it."""

    job: JobId
    generation: Tag
    step: int
    stamp: Stamp
    digest: str
    parts: tuple[tuple[str, str], ...] = ()
    """As in :class:`ShardsWritten`."""


STATES_TOLD = 4
"""Of so many states members tell a new leader again, and leaders wait for what others tell."""


def newest_states(told: Iterable[Digest]) -> list[Digest]:
    """What is kept of what one member has told. Slow disks tell of old states after new ones: those
    must not drive these out."""
    return sorted(told, key=lambda each: (each.step, each.stamp))[-STATES_TOLD:]


@dataclass(frozen=True, slots=True)
class ShardsWritten:
    """These shards of a state are durable on the sender."""

    job: JobId
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: ShardCount
    shards: tuple[tuple[int, int, str], ...]
    digest: str
    """The model's, from those who have the first shard at least; else empty."""
    stall_seconds: float
    write_seconds: float
    mode: SnapshotModeIfAny = ""
    """How the state was held meanwhile."""
    cost_seconds: float = 0.0
    """By how much the steps beside the writing were longer than others, in all."""
    metric: float | None = None
    """The figure by which the job keeps its best checkpoint."""
    step_seconds: float = 0.0
    """Of a step beside which nothing is written; 0: not known."""
    tensors: tuple[tuple[tuple[str, str], ...], ...] = ()
    """Of each of ``shards``, if known: its tensors and the beginning of their digests."""
    check: str = ""
    """Of the state that the sender has itself; none where it has copied the shards."""
    parts: tuple[tuple[str, str], ...] = ()
    """Where the script tracks anything: of the model and of each such thing, its name and the
    beginning of its digest, as the sender has it itself."""
    last: bool = False
    """The script has asked to stop there: who makes the manifest may not know that world."""

    def own(self) -> Digest | None:
        """What it says of the sender's own state."""
        if not self.check:
            return None
        return Digest(self.job, self.generation, self.step, self.stamp, self.check, self.parts)


@dataclass(frozen=True, slots=True)
class ShardsFailed:
    """The sender has not stored its part of a checkpoint, or copies that it was asked for."""

    job: JobId
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: ShardCount
    reason: str
    refused: bool
    """Its disk refuses; otherwise it may work another time."""
    rotten: tuple[tuple[int, NodeId], ...] = ()
    """Shards that nodes gave otherwise than they should be: their copies count no more."""


@dataclass(frozen=True, slots=True)
class ManifestStored:
    job: JobId
    lineage: Lineage
    step: int
    stamp: Stamp
    count: ShardCount
    """Of shards: one state may be cut in two ways, by worlds of two sizes."""
    ok: bool
    reason: str
    refused: bool = False
    """As in :class:`ShardsFailed`."""
    lacks: bool = False
    """A shard that it is to hold isn't there, or is another state's; it may copy that."""


@dataclass(frozen=True, slots=True)
class ManifestStore:
    job: JobId
    manifest: Manifest

    def undone(self, reason: str) -> ManifestStored:
        """The answer of a node that holds nothing of any job."""
        m = self.manifest
        return ManifestStored(
            self.job, m.lineage, m.step, m.stamp, m.count, ok=False, reason=reason
        )


@dataclass(frozen=True, slots=True)
class Consistent:
    """This checkpoint is consistent: older ones may go as the job's retention wants."""

    job: JobId
    lineage: Lineage
    step: int


@dataclass(frozen=True, slots=True)
class Interval:
    """From ``step`` on checkpoint every so many steps. A member that hears it late writes shards of
    other steps, which nobody completes: they are swept away."""

    job: JobId
    generation: Tag
    every: int
    step: int


@dataclass(frozen=True, slots=True)
class PullShards:
    """Ask a node to hold copies.

    ``sources`` names per shard the nodes that have it.
    """

    job: JobId
    generation: Tag
    lineage: Lineage
    step: int
    stamp: Stamp
    count: ShardCount
    digest: str
    shards: tuple[tuple[int, int, str], ...]
    sources: tuple[tuple[NodeId, ...], ...]
    last: bool = False
    """As in :class:`ShardsWritten`."""

    def undone(self, reason: str, refused: bool = False) -> ShardsFailed:
        """The answer of a node that may do it another time, or, if ``refused``, never will."""
        return ShardsFailed(
            self.job, self.generation, self.lineage, self.step, self.stamp, self.count, reason,
            refused=refused,
        )  # fmt: skip
