"""Thousands of records have the same tables and texts in them: each is in memory once."""

from __future__ import annotations

import marshal
import sys
from typing import Any

from elasticd.core.words.codec import Checked

MAX_KNOWN = 4096
MAX_BYTES = 4096
"""Of a table, as it is compared."""
MAX_LETTERS = 40

MAX_TEXTS = 1024

_known: dict[bytes, Checked] = {}
_texts: dict[str, str] = {}


def alike(table: Any) -> Checked:
    """``table``, or one that is the same in values, types and order, and was checked then. Nobody
    may change it. Short texts in it are in memory once, too.

    Raises:
        ProtocolError: it is too long, or nested too deep.
    """
    try:
        # Of plain values: 1, 1.0 and True are equal, and yet not the same.
        key = marshal.dumps(table, 2)
    except ValueError:  # there is something else in it
        return Checked(table)
    if (found := _known.get(key)) is not None:
        return found
    found = Checked(table)
    if len(key) > MAX_BYTES:
        return found
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    _known[key] = found
    if type(table) is dict:
        for name, value in table.items():
            if type(value) is str and len(value) <= MAX_LETTERS:
                table[name] = sys.intern(value)
    return found


def same_reasons(record: dict[str, Any]) -> dict[str, Any]:
    """A job's record, with the reasons in it that others have had: jobs fail alike, and what Python
    had to say may be long."""
    plain: dict[str, Any] = _same_reason(record)
    unfit = record.get("unfit")
    if type(unfit) is not list or not unfit:
        return plain
    return {**plain, "unfit": [_same_reason(each) for each in unfit]}


def _same_reason(plain: Any) -> Any:
    if type(plain) is not dict or type(reason := plain.get("reason")) is not str:
        return plain
    if len(_texts) >= MAX_TEXTS:
        _texts.clear()
    return {**plain, "reason": _texts.setdefault(reason, reason)}
