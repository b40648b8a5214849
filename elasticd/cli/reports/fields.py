"""Reading fields of what daemons answer: other nodes wrote them, so each may be anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from elasticd.cli.screen import clean

MOST_LETTERS = 1000
"""Of a reason; of a traceback the end matters."""
_FURTHEST = 1e15


def number(said: Mapping[str, Any], key: str) -> float | None:
    """A finite number, if it is one."""
    value = said.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # In this order: a whole number may be too large to be asked whether it is finite.
    return float(value) if abs(value) < _FURTHEST and math.isfinite(value) else None


def whole(said: Mapping[str, Any], key: str) -> int | None:
    """The same of a whole number."""
    value = number(said, key)
    return int(value) if value is not None else None


def words(said: Mapping[str, Any], key: str, most: int = MOST_LETTERS) -> str:
    """A text in its lines, printable and not too long; of anything else how it reads."""
    value = said.get(key)
    text = "" if value is None else str(value)
    return clean(text if len(text) <= most else "…" + text[-most:])


def several(said: Mapping[str, Any], key: str, most: int = 64) -> list[Any]:
    """The first of a list, none of what is no list."""
    value = said.get(key)
    return list(value[:most]) if isinstance(value, list | tuple) else []


def maps(said: Mapping[str, Any], key: str, most: int = 10_000) -> list[Mapping[str, Any]]:
    """The maps among the first of a list."""
    return [item for item in several(said, key, most) if isinstance(item, Mapping)]
