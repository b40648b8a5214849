"""What to say of a job's own interpreter (``job.python``) that doesn't do on a node."""

from __future__ import annotations

from elasticd.settings.rules import one_line

_MOST_SAID = 300


def not_started(python: str, error: OSError, having: str = " with elasticd") -> str:
    """Of one that is no program here."""
    return (
        f"{_named(python)} can't be started on this node ({error.strerror}): install a Python"
        f"{having} there, or name one that every node has"
    )


def without_elasticd(python: str, status: int, words: str) -> str:
    """Of one that has ended before it came to the script, with these last words."""
    said = words.rstrip().rpartition("\n")[2]
    why = one_line(said[:_MOST_SAID]) if said else f"it ended with exit status {status}"
    return f"{_named(python)} can't run elasticd on this node: install elasticd there ({why})"


def _named(python: str) -> str:
    return f'job.python = "{one_line(python)}"'
