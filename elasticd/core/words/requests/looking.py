"""What is looked at. The cluster, its events and its files are described in plain maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.types import JobId


@dataclass(frozen=True, slots=True)
class ShowStatus:
    """Of the cluster with one job, or with all."""

    kind: ClassVar = "status"
    job: JobId | None = None
    ended: int | None = None
    """Of the ended jobs only so many, those that ended last; None: all."""
    parts: bool | None = None
    """The answer may come in several frames: before the last one come some of the jobs, with
    ``more``."""
    settings: bool | None = None
    """With what the job's job.toml says, where one job is asked for."""


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Of one job or all; with ``follow`` those to come too."""

    kind: ClassVar = "events"
    job: JobId | None = None
    follow: bool = False


@dataclass(frozen=True, slots=True)
class ReadLosses:
    """The loss of a job by step, as far as the daemon that is asked has heard it."""

    kind: ClassVar = "losses"
    job: JobId


@dataclass(frozen=True, slots=True)
class OpenOutputs:
    """The files in main's output folder, one after the other."""

    kind: ClassVar = "outputs"
    job: JobId


@dataclass(frozen=True, slots=True)
class ShowDisk:
    """What takes the space in the home of the daemon that is asked."""

    kind: ClassVar = "disk"


@dataclass(frozen=True, slots=True)
class TryNotices:
    """Do what ``[notify]`` of the daemon that is asked says, as a test."""

    kind: ClassVar = "try_notices"
    event: str | None = None
    """As ``[notify]`` names it; None: on each that it names."""
