"""Checkpoints of a job. They are described in plain maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.types import JobId


@dataclass(frozen=True, slots=True)
class ListCheckpoints:
    kind: ClassVar = "checkpoints"
    job: JobId
    parts: bool | None = None
    """As :class:`elasticd.core.words.requests.looking.ShowStatus` has it, with checkpoints."""


@dataclass(frozen=True, slots=True)
class VerifyCheckpoints:
    """All, or that of ``step``."""

    kind: ClassVar = "checkpoints_verify"
    job: JobId
    step: int | None = None


@dataclass(frozen=True, slots=True)
class OpenCheckpoint:
    """The newest consistent one, or that of ``step``, or of ``lineage``."""

    kind: ClassVar = "checkpoints_open"
    job: JobId
    step: int | None = None
    lineage: str | None = None
    """As :class:`ListCheckpoints` tells it. An earlier version takes the newest of all."""


@dataclass(frozen=True, slots=True)
class PruneCheckpoints:
    """What is kept is said here, else by the job."""

    kind: ClassVar = "checkpoints_prune"
    job: JobId
    keep: int | None = None
    keep_every_steps: int | None = None
    keep_hours: float | None = None
    dry_run: bool = False
    parts: bool | None = None
    """As :class:`ListCheckpoints` has it, with those that were removed, and those that are kept."""
