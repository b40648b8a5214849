"""Files without a name: bulk data on its way, gone with whoever holds it."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator

from elasticd.checkpoints.nameless import nameless

_SLICE_BYTES = 1 << 20


def nameless_file() -> int:
    """A descriptor of a file that has no name: memory on Linux, an unlinked file elsewhere."""
    # Pythons that were built for old systems have no memfd_create.
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.memfd_create("elasticd-state", os.MFD_CLOEXEC)
    fd, path = tempfile.mkstemp(prefix="elasticd-")
    os.unlink(path)
    return fd


def nameless_memory(platform: str = sys.platform) -> int:
    """A descriptor of memory without a name, for what nobody reads but by mapping it where that is
    the only way: on macOS it is neither read nor written, and has no position."""
    return nameless(platform, "elasticd-state") if platform == "darwin" else nameless_file()


def rewind(fd: int) -> None:
    """Let the next who reads begin at the first byte; memory that is mapped has no position."""
    try:
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError as error:
        if error.errno != errno.ESPIPE:
            raise


def file_of(data: bytes) -> int:
    """A descriptor of a nameless file with these bytes."""
    fd = nameless_file()
    os.write(fd, data)
    return fd


def slices(fd: int) -> Iterator[bytes]:
    """The rest of a file, a piece at a time."""
    while data := os.read(fd, _SLICE_BYTES):
        yield data


async def filled(fill: Callable[[int], Awaitable[object]]) -> bytes:
    """What somebody writes into the descriptor of a nameless file."""
    fd = nameless_file()
    try:
        await fill(fd)
        os.lseek(fd, 0, os.SEEK_SET)
        return b"".join(slices(fd))
    finally:
        os.close(fd)
