"""Bulk bytes between a socket and a file, in a thread of their own.

An event loop that moved them would hold up heartbeats while a disk reads.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import select
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress

from elasticd.checkpoints.sequential import write_all
from elasticd.errors import ProtocolError

_MOVED_BYTES = 1 << 20
"""By one call at most."""
_NOT_READ = (errno.ESPIPE, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
"""The system can't read such files: macOS can't read shared memory, only map it, and says ESPIPE
(XNU, preparefileread)."""
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


async def aside(work: Callable[..., None], *connections: socket.socket) -> None:
    """Do ``work`` with connections that do not block, and raise what it raises.

    Nobody else uses them meanwhile. The thread has ended on return, also when this is cancelled:
    they may then be closed.
    """
    outcome: Future[None] = Future()
    waiting = asyncio.wrap_future(outcome)
    stopped: asyncio.CancelledError | None = None
    name = "elasticd-stream"
    threading.Thread(target=_run, args=(outcome, work, connections), name=name, daemon=True).start()
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as error:
            stopped = error
            for each in connections:
                with suppress(OSError):
                    # Not TLS's own, which would let the thread read on without decryption.
                    socket.socket.shutdown(each, socket.SHUT_RDWR)
    failure = waiting.exception()
    if stopped or failure:
        raise stopped or failure  # type: ignore[misc]


def _run(
    outcome: Future[None], work: Callable[..., None], connections: Sequence[socket.socket]
) -> None:
    try:
        work(*connections)
    except BaseException as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(None)


def receive(connection: socket.socket, sink: int, count: int, idle_seconds: float) -> None:
    """Write the next ``count`` bytes to the descriptor ``sink``; no more may follow. Empty memory
    that can only be mapped gets its size here.

    Raises:
        ProtocolError: there are more or fewer.
        OSError: the connection or ``sink`` fails; TimeoutError: nothing comes for so long.
    """
    if _is_only_mapped(sink):
        if count and count % mmap.PAGESIZE == 0:
            _receive_mapped(connection, sink, count, idle_seconds)
            return
        # Its size would be rounded up to whole pages, and nobody could tell where the bytes end.
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), sink, inheritable=False)
    for piece in _pieces(connection, count, idle_seconds):
        write_all(sink, piece)


def _is_only_mapped(fd: int) -> bool:
    """Of shared memory macOS tells no position, and neither reads nor writes it (XNU, lseek and
    pshmops)."""
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError as error:
        return error.errno == errno.ESPIPE
    return False


def _receive_mapped(connection: socket.socket, sink: int, count: int, idle_seconds: float) -> None:
    os.ftruncate(sink, count)
    with mmap.mmap(sink, count) as mapped:
        for piece in _pieces(connection, count, idle_seconds):
            mapped.write(piece)


def pass_on(connection: socket.socket, sink: socket.socket, count: int, seconds: float) -> None:
    """Send the next ``count`` bytes of one connection to another; raises as :func:`receive`."""
    for piece in _pieces(connection, count, seconds):
        _push(sink, piece, seconds)


def _pieces(connection: socket.socket, count: int, idle_seconds: float) -> Iterator[memoryview]:
    """What comes, in pieces as large as they are there: TLS gives 16 KiB at a time."""
    buffer, filled, left = memoryview(bytearray(_MOVED_BYTES)), 0, count
    while left:
        try:
            got = connection.recv_into(buffer[filled:])
        except _NOT_NOW as error:
            if not filled:
                _wait(connection, error, select.POLLIN, "nothing came", idle_seconds)
        else:
            if got == 0:
                raise ProtocolError(f"it ended {left} bytes early")
            if got > left:
                raise ProtocolError("it sent more than the bytes that it had")
            filled, left = filled + got, left - got
            if left and filled < len(buffer):
                continue
        if filled:
            yield buffer[:filled]
            filled = 0


def _push(connection: socket.socket, data: memoryview, idle_seconds: float) -> None:
    sent = 0
    while sent < len(data):
        try:
            # A view that a traceback kept would keep a mapped file from being closed.
            sent += connection.send(data[sent:])
        except _NOT_NOW as error:
            _wait(connection, error, select.POLLOUT, "it took nothing", idle_seconds)


def send(connection: socket.socket, fd: int, count: int, idle_seconds: float) -> None:
    """Send the first ``count`` bytes of a file.

    Raises:
        OSError: the other side goes away, or the file can't be read or is shorter; TimeoutError: it
            takes nothing for so long.
    """
    buffer, offset = memoryview(bytearray(_MOVED_BYTES)), 0
    while offset < count:
        try:
            got = os.preadv(fd, [buffer[: count - offset]], offset)
        except OSError as error:
            if error.errno not in _NOT_READ:
                raise  # nor may it be mapped: whoever touches a page that no disk gives is killed
            send_mapped(connection, fd, offset, count, idle_seconds)
            return
        if got == 0:
            raise OSError("the file shrank while it was sent")
        _push(connection, buffer[:got], idle_seconds)
        offset += got


def send_mapped(
    connection: socket.socket, fd: int, offset: int, count: int, idle_seconds: float
) -> None:
    """As :func:`send`, from ``offset`` to ``count``, for files that can only be mapped."""
    try:
        mapped = mmap.mmap(fd, count, access=mmap.ACCESS_READ)
    except ValueError:
        raise OSError("the file shrank while it was sent") from None
    with mapped, memoryview(mapped) as view:
        while offset < count:
            with view[offset : offset + _MOVED_BYTES] as piece:
                _push(connection, piece, idle_seconds)
                offset += len(piece)


def _wait(
    connection: socket.socket, why: OSError, event: int, what: str, idle_seconds: float
) -> None:
    """Until it is worth to try again; TLS may have to read in order to write, and the reverse."""
    if isinstance(why, ssl.SSLWantReadError):
        event = select.POLLIN
    elif isinstance(why, ssl.SSLWantWriteError):
        event = select.POLLOUT
    poll = select.poll()
    poll.register(connection, event)
    if not poll.poll(idle_seconds * 1000):
        raise TimeoutError(f"{what} for {idle_seconds:g} s")
