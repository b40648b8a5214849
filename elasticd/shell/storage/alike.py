"""Thousands of records have the same tables in them: each table is in memory once."""

from __future__ import annotations

from typing import Any

MAX_KNOWN = 4096
MAX_ITEMS = 32

_known: dict[tuple[Any, ...], dict[Any, Any]] = {}


def alike(table: dict[Any, Any]) -> dict[Any, Any]:
    """``table``, or one that is the same in values, types and order. Nobody may change it."""
    if len(table) > MAX_ITEMS:
        return table
    try:
        # 1, 1.0 and True are equal, and yet not the same.
        key = (*table.items(), *map(type, table.values()))
        found = _known.setdefault(key, table)
    except TypeError:  # it has lists or tables in it
        return table
    if len(_known) > MAX_KNOWN:
        _known.clear()
    return found
