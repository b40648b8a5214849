"""Everything that a report tells, before it is a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.cli.reports.chronicle import Chronicle
from elasticd.cli.reports.losses import LoggedCurve


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Of one job, as one daemon told it at ``made`` (Unix time).

    Attributes:
        job, nodes: of ``status --json``.
        course: of its events; None: there are none.
        checkpoints: the rows of ``checkpoints list --json``.
        silent: nodes whose checkpoints are not known, each with the reason.
        curves: of the loss that daemons kept, and of files that the script wrote.
        ranks: with what their steps were made of, when that was told last.
        lacking: what could not be had, in sentences.
        version: of this elasticctl.
        named: of what the script gave to ``run.log``, by that name.
    """

    made: float
    job: Mapping[str, Any]
    nodes: tuple[Mapping[str, Any], ...]
    course: Chronicle | None
    checkpoints: tuple[Mapping[str, Any], ...]
    silent: Mapping[str, str]
    curves: tuple[LoggedCurve, ...]
    ranks: tuple[Mapping[str, Any], ...]
    lacking: tuple[str, ...]
    version: str
    named: tuple[LoggedCurve, ...] = ()
