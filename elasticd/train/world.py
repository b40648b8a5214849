"""A world as one of its members sees it: the daemon's ``world`` message, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticd.checkpoints.layout import due, writes
from elasticd.errors import ProtocolError
from elasticd.types import JobId, Lineage, NodeId, Point, Range, Stamp, Tag

Share = tuple[Range, ...]


@dataclass(frozen=True)
class Writes:
    """When a checkpoint is due and who writes what of it."""

    every: int
    count: int
    replicas: int
    writers: tuple[tuple[int, ...], ...] = ()
    """Per shard the ranks that write it; empty: as :func:`layout.writes` says."""
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
class World:
    """One generation of a job, entered from the committed state ``point``.

    ``shares_now`` are the grains of the first step, per rank; ``shares`` those of all later ones.
    """

    generation: Tag
    job: JobId
    rank: int
    size: int
    members: tuple[NodeId, ...]
    point: Point
    state: str
    shares_now: tuple[Share, ...]
    shares: tuple[Share, ...]
    reduction: str
    checkpointed: int
    checkpoint_folder: Path
    writes: Writes
    micro: int = 0
    """Samples in a grain; shares number grains of this size. 0: as job.toml says."""
    relief: int = 0
    """What is given up for want of memory: elasticd.recovery.relief."""

    @classmethod
    def of_message(cls, message: Mapping[str, Any]) -> World:
        """Read a ``world`` message.

        Raises:
            ProtocolError: it lacks something or makes no sense.
        """
        try:
            checkpointed = message["checkpointed"]
            world = cls(
                generation=tag_of(message["generation"]),
                job=JobId(message["job"]),
                rank=int(message["rank"]),
                size=int(message["size"]),
                members=tuple(NodeId(node) for node in message["members"]),
                point=Point(
                    Lineage(message["lineage"]), int(message["step"]), Stamp(message["stamp"])
                ),
                state=str(message["state"]),
                shares_now=_shares(message["shares_now"]),
                shares=_shares(message["shares"]),
                reduction=str(message["reduction"]),
                checkpointed=-1 if checkpointed is None else int(checkpointed),
                checkpoint_folder=Path(message["checkpoint_folder"]),
                writes=_writes(message["writes"]),
                micro=int(message.get("micro", 0)),
                relief=int(message.get("relief", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"a world that can't be read: {error!r}") from error
        if (
            not 0 <= world.rank < world.size == len(world.shares_now) == len(world.shares)
            or world.state not in ("keep", "load", "init")
            or world.reduction not in ("exact", "fast")
            or world.writes.every < 1
            or world.micro < 0
        ):
            raise ProtocolError(f"a world that makes no sense: {world}")
        return world

    def shares_of(self, step: int) -> tuple[Share, ...]:
        """Who computes what in ``step``, per rank."""
        return self.shares_now if step == self.point.step + 1 else self.shares

    def share(self, step: int) -> Share:
        """The grains of this member in ``step``."""
        return self.shares_of(step)[self.rank]

    def checkpoint_due(self, step: int, steps: int) -> bool:
        """Whether this world wants a checkpoint of ``step``; the job ends at ``steps``."""
        return due(step, self.writes.every_at(step), steps) and step > self.checkpointed


def tag_of(value: Sequence[Any]) -> Tag:
    """Read (counter, leader, nonce)."""
    counter, leader, nonce = value
    return Tag(int(counter), NodeId(leader), str(nonce))


def tag_list(tag: Tag) -> list[Any]:
    """The inverse of :func:`tag_of`."""
    return [tag.counter, tag.leader, tag.nonce]


def _writes(value: Mapping[str, Any]) -> Writes:
    writers = tuple(tuple(int(rank) for rank in ranks) for ranks in value.get("writers", ()))
    return Writes(int(value["every"]), int(value["count"]), int(value["replicas"]), writers)


def _shares(value: Sequence[Any]) -> tuple[Share, ...]:
    return tuple(tuple((int(start), int(end)) for start, end in share) for share in value)
