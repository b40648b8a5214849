"""The file of the memory that a trainer shares with its reducer (memory.py maps it).

The daemon makes it, which needs no numpy: that would take a fifth of a young daemon's memory.
"""

from __future__ import annotations

import os
import sys

from elasticd.checkpoints.nameless import nameless

SLOTS = 2
PAYLOAD_FLOATS = 8 << 20
"""Large, because a collective costs little next to what its wake-ups cost (make bench): 4 MB
chunks took 1.5 to 5 times as long as 20 MB at once with three ranks on two cores."""
TAG_BYTES = 128
SLOT_BYTES = TAG_BYTES + 4 * PAYLOAD_FLOATS + TAG_BYTES
MEMORY_BYTES = SLOTS * SLOT_BYTES


def create_memory() -> int:
    """A new nameless shared file for one reducer; its pages take memory when they are first used.

    Raises:
        OSError: no descriptors or memory left.
    """
    fd = nameless(sys.platform, "elasticd-chunks")
    try:
        os.ftruncate(fd, MEMORY_BYTES)
    except BaseException:
        os.close(fd)
        raise
    return fd
