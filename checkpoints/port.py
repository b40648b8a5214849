"""The store as a port: what restoring, verifying, listing, exporting and pruning need of a node.

:class:`~elasticd.checkpoints.store.LocalStore` is this node's,
:class:`~elasticd.checkpoints.peer.PeerStore` another's. Writing is no part of it: a shard is
durable when the node that holds it says so, so each node writes its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from elasticd.checkpoints.manifest import Stored
from elasticd.types import JobId, Stamp


@dataclass(frozen=True, slots=True)
class Problem:
    """Something stored that can't be used: where, the shard if it is one, and why in words."""

    path: Path
    shard: int | None
    reason: str
    rotten: bool = False
    """It is there, and never right again: it was read, and has other bytes than were written, or
    the disk has lost some of them."""


class Store(Protocol):
    """One node's checkpoints, of all jobs. Calls block.

    Every method raises :class:`~elasticd.errors.StateError` when the disk refuses, and
    :class:`~elasticd.errors.OperationError` when the node doesn't answer.
    """

    def jobs(self) -> list[JobId]:
        """Jobs that have anything stored there."""

    def stored(self, job: JobId) -> list[Stored]:
        """Every checkpoint with a readable manifest, by step, and the shards really there."""

    def unreadable(self, job: JobId) -> list[str]:
        """The folders' names of final checkpoints without a readable manifest."""

    def held(
        self, job: JobId, step: int, stamp: Stamp, count: int | None = None
    ) -> tuple[int, ...]:
        """The shards of a checkpoint that are there; before its commit, of ``count``."""

    def coming(self, job: JobId, step: int, stamp: Stamp, count: int) -> tuple[int, ...]:
        """The shards that are there of a checkpoint that is not final there yet."""

    def open_shard(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> BinaryIO:
        """A shard, for reading from its start; the caller closes it. StateError: not there."""

    def verify(
        self, job: JobId, step: int, stamp: Stamp, index: int | None = None
    ) -> list[Problem]:
        """Read a final checkpoint, or one shard; what of it is rotten, unreadable or missing."""

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        """Remove a checkpoint; no error if it is gone."""
