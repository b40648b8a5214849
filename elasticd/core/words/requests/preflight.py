"""A look at all nodes, as before a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from elasticd.preflight.needs import JobNeeds, ScriptOffer


@dataclass(frozen=True, slots=True)
class RunPreflight:
    """Look at all nodes as before a job. How far it is follows, as :class:`PreflightTold`, and then
    the report, as a plain map. It ends when the client hangs up."""

    kind: ClassVar = "preflight"
    last: bool | None = None
    """The report that is stored on the daemon that is asked, and nothing is done."""
    only: Literal["links", "speed"] | None = None
    busy: bool | None = None
    """Measure also where a job has processes."""
    job: JobNeeds | None = None
    """Look also at what this one needs. An earlier version knows no such thing, and its report says
    nothing of a job."""
    seconds: float | None = None
    """For so long each node computes, where speeds alone are measured."""
    script: ScriptOffer | None = None
    """Make the first step of ``job`` on each node, too. Its files follow as :class:`ArchivePart`,
    once they are asked for; an earlier version does not."""


@dataclass(frozen=True, slots=True)
class PreflightTold:
    """What is being looked at."""

    doing: str
    send: bool = False
    """The files of the script that was offered are to be sent now."""
