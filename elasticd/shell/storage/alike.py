"""Thousands of records have the same tables in them: each table is in memory once."""

from __future__ import annotations

import marshal
import sys
from typing import Any

MAX_KNOWN = 4096
MAX_BYTES = 4096
"""Of a table, as it is compared."""
MAX_LETTERS = 40

_known: dict[bytes, Any] = {}


def alike(table: Any) -> Any:
    """``table``, or one that is the same in values, types and order. Nobody may change it. Short
    texts in it are in memory once, too."""
    try:
        # Of plain values: 1, 1.0 and True are equal, and yet not the same.
        key = marshal.dumps(table, 2)
    except ValueError:  # there is something else in it
        return table
    if len(key) > MAX_BYTES:
        return table
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    found = _known.setdefault(key, table)
    if found is table and type(table) is dict:
        for name, value in table.items():
            if type(value) is str and len(value) <= MAX_LETTERS:
                table[name] = sys.intern(value)
    return found
