"""What a daemon has needed for a moment goes back to the system."""

from __future__ import annotations

import ctypes
from typing import Any

LARGE_BYTES = 256 * 1024

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD of glibc's malloc.h."""


def give_back_large_blocks(libc: Any = None) -> bool:
    """From now on have blocks of :data:`LARGE_BYTES` and more go back as soon as they are freed.

    glibc maps large blocks by themselves, too, but takes from the first one that is freed that such
    come again (mallopt(3), "dynamic mmap threshold"): after a journal of years has been read, only
    the end of its heap ever went back, which was a tenth of the daemon's memory.

    Returns whether the C library has such a setting. macOS's has none, and gives large blocks back.
    """
    call = getattr(libc or ctypes.CDLL(None), "mallopt", None)
    return call is not None and call(_MMAP_THRESHOLD, LARGE_BYTES) == 1
