"""A run as a file: the setup as one line that can be replayed, then its transcript."""

from __future__ import annotations

import json
from typing import Any

from elasticd.core.codec import from_plain, to_plain

from .cluster import JobShape, Mishap, Setup, Strike, Weather
from .run import Result

_HINTS = {
    "jobs": tuple[JobShape, ...],
    "strikes": tuple[Strike, ...] | None,
    "mishaps": tuple[Mishap, ...] | None,
    "weather": Weather,
}
_LEFT_OUT = ("timing", "node_type")
_MAX_LINES = 400


def write_plan(result: Result) -> str:
    """The plan on the first line, the problem, then the transcript, cut in its middle."""
    setup = result.setup
    plain = {
        name: to_plain(getattr(setup, name))
        for name in Setup.__dataclass_fields__
        if name not in _LEFT_OUT
    }
    lines = result.transcript
    if len(lines) > _MAX_LINES:
        half = _MAX_LINES // 2
        lines = [*lines[:half], f"... {len(lines) - 2 * half} lines ...", *lines[-half:]]
    return "\n".join([json.dumps(plain), result.problem, f"digest {result.digest}", "", *lines, ""])


def read_plan(text: str) -> Setup:
    """The setup on the first line of a plan's file."""
    plain = json.loads(text.splitlines()[0])
    given: dict[str, Any] = {
        name: from_plain(_HINTS[name], value)
        if name in _HINTS
        else (tuple(value) if isinstance(value, list) else value)
        for name, value in plain.items()
    }
    return Setup(**given)
