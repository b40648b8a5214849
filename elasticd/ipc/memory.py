"""The memory that a trainer shares with its reducer: a few slots, each with room for tags.

A slot is ``TAG_BYTES``, then the payload, then ``TAG_BYTES``. The trainer writes its parts of a
chunk one behind the other into the payload; the reducer puts tags directly before and behind what
was written, so that one contiguous piece goes out, and writes the reduced chunk to the payload's
start. The file has no name: it goes with its last descriptor.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from elasticd.ipc.memoryfile import MEMORY_BYTES, SLOT_BYTES, SLOTS, TAG_BYTES

_TAG_FLOATS = TAG_BYTES // 4


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

    def framed(
        self, slot: int, length: int, tag_floats: int, start: int = 0
    ) -> NDArray[np.float32]:
        """``length`` elements of a payload with ``tag_floats`` before and behind them."""
        first = _TAG_FLOATS + start
        return self._slots[slot, first - tag_floats : first + length + tag_floats]
