"""A world as the trainer of one of its members sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from elasticd.checkpoints.layout import due, writes
from elasticd.core.words.rewording import reworded
from elasticd.core.words.trainers import GiveWorld, Newcomers
from elasticd.errors import ProtocolError
from elasticd.types import JobId, NodeId, Point, Range, Reduction, ShardCount, Tag

Share = tuple[Range, ...]


@dataclass(frozen=True)
class Writes:
    """When a checkpoint is due and who writes what of it."""

    every: int
    count: ShardCount
    replicas: int
    writers: tuple[tuple[int, ...], ...] = ()
    """Per shard the ranks that write it; empty: as :func:`layout.writes` says."""
    also: int = -1
    """A step whose state is stored, too."""
    changes: list[tuple[int, int]] = field(default_factory=list, compare=False)
    """(step, every): from that step on another interval."""

    def shards_of(self, rank: int, size: int) -> list[int]:
        """The shards that ``rank`` of ``size`` writes."""
        if self.writers:
            return [shard for shard, ranks in enumerate(self.writers) if rank in ranks]
        return writes(rank, size, self.count, self.replicas)

    def every_at(self, step: int) -> int:
        """Steps between checkpoints at ``step``."""
        return next((e for start, e in reversed(self.changes) if step >= start), self.every)


@dataclass(frozen=True)
class TrainerWorld:
    """One generation of a job, entered from the committed state ``point``.

    ``shares_now`` are the grains of the first step, per rank; ``shares`` those of all later ones.
    """

    generation: Tag
    job: JobId
    rank: int
    size: int
    members: tuple[NodeId, ...]
    point: Point
    state: Literal["keep", "load", "init"]
    shares_now: tuple[Share, ...]
    shares: tuple[Share, ...]
    reduction: Reduction
    checkpointed: int
    checkpoint_folder: Path
    writes: Writes
    micro: int = 0
    """Samples in a grain; shares number grains of this size. 0: as job.toml says."""
    relief: int = 0
    """What is given up for want of memory: elasticd.recovery.relief."""
    last: int = -1
    """The last step, where the script has asked to stop; -1: as job.toml says."""
    caller: int = 0
    """The rank on which the functions run that ``run.on_main`` is given."""
    calls: tuple[tuple[int, int], ...] = ()
    """(step, n): so many results of that step's body the caller knows, and gives again."""
    newcomers: Newcomers = field(default_factory=Newcomers)
    walks: bool = False
    """Exact sums are made along the ring."""
    addresses: tuple[str, ...] = ()
    """Of a plain job: where each rank's script is to listen for the rank before it."""
    on_cpu: bool = False
    """Updates are made on the CPU."""

    @classmethod
    def as_given(cls, word: GiveWorld) -> TrainerWorld:
        """The same with a state and a folder, once it makes sense.

        Raises:
            ProtocolError: it makes none.
        """
        world = reworded(
            cls,
            word,
            point=Point(word.lineage, word.step, word.stamp),
            checkpoint_folder=Path(word.checkpoint_folder),
            writes=reworded(Writes, word.writes),
        )
        if (
            not 0 <= world.rank < world.size == len(world.shares_now) == len(world.shares)
            or world.writes.every < 1
            or world.micro < 0
            or not 0 <= world.caller < world.size
            or not -1 <= world.newcomers.keeper < world.size
        ):
            raise ProtocolError(f"a world that makes no sense: {world}")
        return world

    def shares_of(self, step: int) -> tuple[Share, ...]:
        """Who computes what in ``step``, per rank."""
        return self.shares_now if step == self.point.step + 1 else self.shares

    def share(self, step: int) -> Share:
        """The grains of this member in ``step``."""
        return self.shares_of(step)[self.rank]

    def ends_at(self, steps: int) -> int:
        """The last step, in a job of so many."""
        return steps if self.last < 0 else self.last

    def checkpoint_due(self, step: int, steps: int) -> bool:
        """Whether this world wants a checkpoint of ``step``, in a job of so many ``steps``."""
        wanted = due(step, self.writes.every_at(step), self.ends_at(steps))
        return (wanted or step == self.writes.also) and step > self.checkpointed
