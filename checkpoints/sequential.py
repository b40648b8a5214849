"""Writes a new file from its beginning to its end, past the page cache where that can be done.

A checkpoint is hardly ever read again soon, so cached pages of it only take the place of others;
and to fill them costs more processor time than all else about a write.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

Chunk = bytes | bytearray | memoryview

SLICE_BYTES = 1 << 20
"""Read, hashed and written at once: few calls, and what was just hashed is still in the processor's
cache when it is copied."""
BLOCK_BYTES = 4 << 20
"""Written at once past the cache. Smaller files are cached: they are no loss there."""
_AHEAD_BYTES = 8 << 20
"""Written before the disk is told to begin with it, instead of at the flush, when all waits."""
_O_DIRECT = getattr(os, "O_DIRECT", 0)
_F_NOCACHE = 48
"""From Darwin's sys/fcntl.h; Python has no name for it elsewhere."""

SetDirect = Callable[[int, bool], object]
"""Has writes of a descriptor go past the cache from now on, or no more. Raises OSError."""


class Writer:
    """Takes the bytes of the empty file ``fd`` in order; all raise :class:`OSError`.

    Direct writes need aligned memory, so that bytes are gathered in a block, which replaces the
    copy into the cache; a thread writes it while the next one fills. A file system that refuses
    them gets ordinary ones.
    """

    def __init__(
        self, fd: int, block_bytes: int = BLOCK_BYTES, switch: SetDirect | None = None
    ) -> None:
        """``switch``: by default that of this system."""
        self._fd = fd
        self._switch = switch or direct_writes(sys.platform)
        blocks = 0 if self._switch is None else 2
        self._blocks = [memoryview(mmap.mmap(-1, block_bytes)) for _ in range(blocks)]
        """The one that fills, and the one that is written; none if writes are ordinary."""
        self._filled = 0
        self._direct = False
        self._written = self._started = 0
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[bool] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Until it is left a thread may write to ``fd``."""
        if self._pool is not None:
            self._pool.shutdown()

    def take(self, chunk: Chunk) -> None:
        """Write the next bytes, now or with later ones."""
        view = memoryview(chunk).cast("B")
        while view:
            if not self._blocks:
                self._write_cached(view)
                return
            room = self._blocks[0][self._filled : self._filled + len(view)]
            room[:] = view[: len(room)]
            self._filled += len(room)
            view = view[len(room) :]
            if self._filled == len(self._blocks[0]):
                self._hand_over()

    def finish(self) -> None:
        """Write what is left. The file's position is then its end, and its writes are cached."""
        self._wait()
        self._set_direct(False)
        self._empty_block()
        self._blocks.clear()

    def _hand_over(self) -> None:
        """The block is full: have it written once the one before it is."""
        self._wait()
        if not self._blocks:
            return
        self._pool = self._pool or ThreadPoolExecutor(1, "elasticd-disk")
        self._writing = self._pool.submit(self._write_direct, self._blocks[0])
        self._blocks.reverse()
        self._filled = 0

    def _wait(self) -> None:
        """What was handed over is written, or is refused by now and for ever."""
        writing, self._writing = self._writing, None
        if writing is not None and not writing.result():
            self._empty_block()
            self._blocks.clear()

    def _empty_block(self) -> None:
        if self._filled:
            self._write_cached(self._blocks[0][: self._filled])
            self._filled = 0

    def _write_direct(self, block: memoryview) -> bool:
        """Write a block; False if the file system writes past the cache no more."""
        rest = block
        try:
            self._set_direct(True)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP):
                raise
            self._set_direct(False)
        self._written += len(block) - len(rest)
        self._started = self._written
        self._write_cached(rest)
        return self._direct

    def _set_direct(self, wanted: bool) -> None:
        if wanted != self._direct and self._switch is not None:
            self._switch(self._fd, wanted)
            self._direct = wanted

    def _write_cached(self, data: memoryview) -> None:
        write_all(self._fd, data)
        self._written += len(data)
        if self._written - self._started >= _AHEAD_BYTES:
            _start_writing(self._fd, self._started, self._written - self._started)
            self._started = self._written


def direct_writes(
    platform: str, control: Callable[[int, int, int], object] = fcntl.fcntl
) -> SetDirect | None:
    """How that system writes past its cache; None: it doesn't. ``control`` is Darwin's fcntl(2)."""
    if platform == "darwin":
        return lambda fd, wanted: control(fd, _F_NOCACHE, int(wanted))
    return _set_o_direct if _O_DIRECT else None


def _set_o_direct(fd: int, wanted: bool) -> None:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~_O_DIRECT
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | _O_DIRECT * wanted)


def write_all(fd: int, data: Chunk) -> None:
    """Write every byte of ``data`` at the descriptor's position, in slices."""
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view[:SLICE_BYTES]) :]


def _start_writing(fd: int, offset: int, size: int) -> None:
    """Let the disk begin with bytes that are flushed later; a hint, on which nothing depends."""
    if _SYNC_FILE_RANGE is not None:
        _SYNC_FILE_RANGE(fd, offset, size, _SYNC_FILE_RANGE_WRITE)


def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Linux's system call, see sync_file_range(2); Python has no name for it."""
    call = getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call


_SYNC_FILE_RANGE = _sync_file_range()
_SYNC_FILE_RANGE_WRITE = 2
