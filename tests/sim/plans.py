"""A run as a file: the setup as one line that can be replayed, then its transcript."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from elasticd.core.words.codec import to_plain

from .chips import Chips
from .cluster import JobShape, Mishap, Setup, Strike, Weather
from .longer import Longer
from .poison import Poison
from .run import Result

_KINDS = {
    "jobs": JobShape,
    "strikes": Strike,
    "mishaps": Mishap,
    "weather": Weather,
    "poison": Poison,
    "longer": Longer,
    "chips": Chips,
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
    """The setup on the first line of a plan's file; what it does not say is as usual."""
    plain = json.loads(text.splitlines()[0])
    return Setup(**{name: _built(value, _KINDS.get(name)) for name, value in plain.items()})


def _built(value: Any, kind: Callable[..., Any] | None) -> Any:
    if isinstance(value, list):
        return tuple(_built(item, kind) for item in value)
    if isinstance(value, dict) and kind is not None:
        return kind(**{name: _built(item, None) for name, item in value.items()})
    return value
