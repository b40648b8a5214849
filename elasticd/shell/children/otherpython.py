"""What to say of a job's own interpreter (``job.python``) that can't run elasticd on this node."""

from __future__ import annotations

from elasticd.core.words.processes import CANNOT_BEGIN, OURS
from elasticd.settings.job import JobSpec
from elasticd.settings.rules import one_line

_MOST_SAID = 300


def other_python(spec: JobSpec) -> str:
    """The interpreter that its trainers have in place of the daemon's; "": none."""
    return "" if spec.plain else spec.job.python


def not_started(python: str, error: OSError) -> str:
    """Of one that is no program here."""
    return (
        f"{_named(python)} can't be started on this node ({error.strerror}): install a Python with"
        " elasticd there, or name one that every node has"
    )


def unbegun(python: str, status: int, words: str) -> tuple[int, str]:
    """The status and the last words of a trainer that has ended by itself before it said hello, so
    before its script: elasticd could not be imported. What it printed is in its log."""
    said = words.rstrip().rpartition("\n")[2]
    why = one_line(said[:_MOST_SAID]) if said else f"it ended with exit status {status}"
    line = f"{_named(python)} can't run elasticd on this node: install elasticd there ({why})"
    return CANNOT_BEGIN, f"{words.rstrip()}\n{OURS}{line}"


def _named(python: str) -> str:
    return f'job.python = "{one_line(python)}"'
