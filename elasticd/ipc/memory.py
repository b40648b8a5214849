"""The memory that a trainer shares with its reducer: a few slots, each with room for tags.

A slot is ``TAG_BYTES``, then the payload, then ``TAG_BYTES``. The trainer writes its parts of a
chunk one behind the other into the payload; the reducer puts tags directly before and behind what
was written, so that one contiguous piece goes out, and writes the reduced chunk to the payload's
start. The file has no name: it goes with its last descriptor.
"""

from __future__ import annotations

import importlib
import mmap
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOTS = 2
PAYLOAD_FLOATS = 8 << 20
"""Large, because a collective costs little next to what its wake-ups cost (make bench): 4 MB
chunks took 1.5 to 5 times as long as 20 MB at once with three ranks on two cores."""
TAG_BYTES = 128
SLOT_BYTES = TAG_BYTES + 4 * PAYLOAD_FLOATS + TAG_BYTES
MEMORY_BYTES = SLOTS * SLOT_BYTES

_TAG_FLOATS = TAG_BYTES // 4


def create_memory() -> int:
    """A new nameless shared file for one reducer; its pages take memory when they are first used.

    Raises:
        OSError: no descriptors or memory left.
    """
    fd = _nameless()
    try:
        os.ftruncate(fd, MEMORY_BYTES)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _nameless() -> int:
    if sys.platform == "linux":
        return os.memfd_create("elasticd-chunks", os.MFD_CLOEXEC)
    # What multiprocessing.shared_memory stands on.
    posixshmem: Any = importlib.import_module("_posixshmem")
    name = f"/elasticd-{os.urandom(8).hex()}"
    fd: int = posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
    posixshmem.shm_unlink(name)
    return fd


class SharedMemory:
    """The slots, mapped. The mapping goes when the object and its views do."""

    def __init__(self, fd: int) -> None:
        """Map the file; the descriptor stays the caller's.

        Raises:
            OSError, ValueError: the descriptor is not such a file.
        """
        floats = np.frombuffer(mmap.mmap(fd, MEMORY_BYTES), np.float32)
        self._slots = floats.reshape(SLOTS, SLOT_BYTES // 4)

    def payload(self, slot: int) -> NDArray[np.float32]:
        """The ``PAYLOAD_FLOATS`` elements of a slot, writable."""
        return self._slots[slot, _TAG_FLOATS:-_TAG_FLOATS]

    def framed(self, slot: int, length: int, tag_floats: int) -> NDArray[np.float32]:
        """The first ``length`` elements of a payload with ``tag_floats`` before and behind them."""
        return self._slots[slot, _TAG_FLOATS - tag_floats : _TAG_FLOATS + length + tag_floats]
