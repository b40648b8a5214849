"""Trainers that a job's own interpreter (``job.python``) is to run."""

from __future__ import annotations

from elasticd.core.words.processes import CANNOT_BEGIN, OURS
from elasticd.settings.job import JobSpec
from elasticd.settings.otherpython import without_elasticd


def other_python(spec: JobSpec) -> str:
    """The interpreter that its trainers have in place of the daemon's; "": none."""
    return "" if spec.plain else spec.job.python


def unbegun(python: str, status: int, words: str) -> tuple[int, str]:
    """The status and the last words of a trainer that has ended by itself before it said hello, so
    before its script: elasticd could not be imported. What it printed is in its log."""
    return CANNOT_BEGIN, f"{words.rstrip()}\n{OURS}{without_elasticd(python, status, words)}"
