"""Jobs: what is done to them, and what they are then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from elasticd.types import JobId, NodeId


@dataclass(frozen=True, slots=True)
class NameJob:
    """An id for a job that is about to be submitted. It promises nothing."""

    kind: ClassVar = "name_job"
    name: str


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Its folder follows as :class:`ArchivePart`."""

    kind: ClassVar = "submit"
    spec: dict[str, Any]
    archive_bytes: int
    archive_digest: str
    id: JobId | None = None
    """The client's id for it: said again, on any node, it is the same job."""


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """Follows a :class:`SubmitJob` until all bytes are there. It has no name on the wire."""

    data: bytes


@dataclass(frozen=True, slots=True)
class CancelJob:
    kind: ClassVar = "cancel"
    job: JobId


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """One that has ended, with all its files on all nodes."""

    kind: ClassVar = "forget"
    job: JobId


@dataclass(frozen=True, slots=True)
class PauseJob:
    kind: ClassVar = "pause"
    job: JobId


@dataclass(frozen=True, slots=True)
class ResumeJob:
    kind: ClassVar = "resume"
    job: JobId


@dataclass(frozen=True, slots=True)
class RetryJob:
    """Try nodes again that the job goes on without."""

    kind: ClassVar = "retry"
    job: JobId
    memory: bool = False
    """Try also to do without what was given up for want of memory."""


@dataclass(frozen=True, slots=True)
class JobNamed:
    id: JobId


@dataclass(frozen=True, slots=True)
class Submitted:
    id: JobId
    warning: str = ""
    """Why it can't run now, if it can't."""
    short: str = ""
    """Which nodes have its files, if they are fewer than there should be."""


@dataclass(frozen=True, slots=True)
class JobChanged:
    id: JobId
    state: str
    """As people are told; that it is paused is no state of its record."""
    already: bool = False
    """It was to be cancelled, and had ended before: nothing has changed."""


@dataclass(frozen=True, slots=True)
class JobRetried:
    id: JobId
    nodes: tuple[NodeId, ...]
    """Those that are tried again."""
    relief: int = 0
    """The level of relief that is given back; 0: none is."""


ChangeOfJob = CancelJob | ForgetJob | PauseJob | ResumeJob
