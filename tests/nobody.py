"""Permissions as they count for others: root reads everything."""

from __future__ import annotations

import contextlib

# Nobody may not look into Python's own folder, and an encoding that it misses stays missing.
import encodings.utf_8_sig  # noqa: F401
import os
from collections.abc import Iterator

NOBODY = 65534


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """For the whole process; as we are, if that isn't root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
