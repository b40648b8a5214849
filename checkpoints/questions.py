"""What one node asks another's store (docs/protocols.md §4); ``elasticd.core.words.bulk`` has them
among all that is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.types import JobId, ShardCount, Stamp


@dataclass(frozen=True, slots=True)
class StoredJobs:
    kind: ClassVar = "stored_jobs"


@dataclass(frozen=True, slots=True)
class StoredOfJob:
    kind: ClassVar = "stored"
    job: JobId


@dataclass(frozen=True, slots=True)
class HeldShards:
    """Of a checkpoint that may not be final; ``count`` None: however it is cut."""

    kind: ClassVar = "held"
    job: JobId
    step: int
    stamp: Stamp
    count: ShardCount | None = None


@dataclass(frozen=True, slots=True)
class VerifyStored:
    """All shards, or one. Whoever asks gives each reading a name (``asked``), and asks by it again
    while that goes on."""

    kind: ClassVar = "verify"
    job: JobId
    step: int
    stamp: Stamp
    index: int | None = None
    asked: str = ""


@dataclass(frozen=True, slots=True)
class RemoveStored:
    kind: ClassVar = "remove"
    job: JobId
    step: int
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class WantShard:
    """The file itself."""

    kind: ClassVar = "shard"
    job: JobId
    step: int
    stamp: Stamp
    index: int
    count: ShardCount


Question = StoredJobs | StoredOfJob | HeldShards | VerifyStored | RemoveStored
"""Answered by checkpoints/peer.py."""
