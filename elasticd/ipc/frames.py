"""Frames: msgpack maps with a length before them (docs/protocols.md, top), and descriptors beside
them.

:func:`encode` and :class:`Decoder` touch no socket. :class:`FrameSocket` is the blocking shell
for children; the daemon drives the same two from asyncio.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

from elasticd.errors import ProtocolError
from elasticd.ipc.unixpath import addressed, addressed_aside

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_FRAME_FDS = 1024
"""Descriptors that may travel with one frame."""
BATCH_FDS = 64
"""Of these so many at a time, each batch with one of the frame's bytes; the kernels allow a few
more."""

FULL_SECONDS = 0.005
"""After which a batch is tried again that found no room. To wait for the socket is not enough: it
counts as writable, since there is room for something shorter."""

_HEADER = struct.Struct(">I")
_READ_BYTES = 256 * 1024
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class NoRoomYet(OSError):
    """The descriptors have no room beside what the other end has not read yet."""


def send_batch(connection: socket.socket, byte: bytes | memoryview, fds: Sequence[int]) -> int:
    """Send the next byte of a frame, and at most :data:`BATCH_FDS` descriptors with it.

    Raises:
        NoRoomYet: nothing was sent, and may be a little later. macOS says so by EMSGSIZE, which
            would be for good only if a batch were longer than an empty socket takes.
        OSError: nothing was sent.
    """
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    try:
        return connection.sendmsg([byte], rights)
    except OSError as error:
        if error.errno == errno.EMSGSIZE:
            raise NoRoomYet(*error.args) from None
        raise


class CutFrame(ProtocolError):
    """The stream ends inside a frame."""


class LongFrame(ProtocolError):
    """It would be longer than :data:`MAX_FRAME_BYTES`."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame.

    Raises:
        LongFrame: it would be longer than :data:`MAX_FRAME_BYTES`.
        TypeError: a value has a type that msgpack does not know.
    """
    body: bytes = msgpack.packb(dict(message), use_bin_type=True)
    if len(body) > MAX_FRAME_BYTES:
        raise LongFrame(f"a frame of {len(body)} bytes is longer than {MAX_FRAME_BYTES}")
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Cuts a stream of bytes into messages. After an error it is of no more use: close the
    connection.
    """

    def __init__(self, first_bytes: int = MAX_FRAME_BYTES) -> None:
        """``first_bytes``: the longest first frame, which comes from somebody still unknown."""
        self._limit = first_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> list[dict[str, Any]]:
        """The messages that ``data`` completes, in order.

        Raises:
            ProtocolError: a frame is too long, cannot be decoded or is not a map with text keys.
        """
        self._buffer += data
        messages = []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer, start)
            if length > self._limit:
                raise ProtocolError(f"a frame of {length} bytes is longer than {self._limit}")
            body = start + _HEADER.size
            if len(self._buffer) < body + length:
                break
            messages.append(_decode(bytes(self._buffer[body : body + length])))
            start = body + length
            self._limit = MAX_FRAME_BYTES
        del self._buffer[:start]
        return messages

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has begun and not ended: at the end of a stream they mean it was
        cut.
        """
        return len(self._buffer)


def _decode(body: bytes) -> dict[str, Any]:
    try:
        message = msgpack.unpackb(body, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"a frame cannot be decoded: {error}") from error
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise ProtocolError(f"a frame is not a map with text keys but {type(message).__name__}")
    return message


class FrameSocket:
    """A Unix stream socket that carries frames and descriptors, with blocking calls.

    Any number of threads may send; one thread receives. Frames that carry descriptors have a key
    ``fds`` with their number. The descriptors go with the frame's first bytes, so they are there
    when the frame is complete: each frame has more bytes than it can have batches of them.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        self._socket = connection
        self._sending = threading.Lock()
        self._decoder = Decoder()
        self._messages: deque[dict[str, Any]] = deque()
        self._fds: deque[int] = deque()

    @classmethod
    def connect(cls, path: str | os.PathLike[str]) -> FrameSocket:
        """Connect to the Unix socket at ``path``, however long the path is.

        For one that does not fit into a socket address the working folder is changed for the moment
        of connecting: call it before other threads open files by relative names.

        Raises:
            OSError: nobody listens there.
        """
        with addressed(path) as address:
            return cls(_connected(address))

    @classmethod
    def connect_aside(
        cls, path: str | os.PathLike[str], platform: str = sys.platform
    ) -> FrameSocket:
        """As :meth:`connect`, but the working folder stays: other threads may need it.

        Raises:
            OSError: nobody listens there.
        """
        with addressed_aside(path, platform) as address:
            return cls(_connected(address))

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one frame, with copies of ``fds``; the caller keeps its own.

        Raises:
            ProtocolError: too long, too many descriptors, or ``message["fds"]`` is another number.
            OSError: the other end has gone.
        """
        if message.get("fds", len(fds)) != len(fds) or len(fds) > MAX_FRAME_FDS:
            raise ProtocolError(f"{len(fds)} descriptors do not fit the frame")
        frame = encode({**message, "fds": len(fds)} if fds else message)
        with self._sending:
            data, sent = memoryview(frame), 0
            for first in range(0, len(fds), BATCH_FDS):
                batch = fds[first : first + BATCH_FDS]
                sent += self._send_batch(data[sent : sent + 1], batch)
            self._socket.sendall(data[sent:])

    def _send_batch(self, byte: memoryview, fds: Sequence[int]) -> int:
        """As soon as there is room, as for all else that a blocking socket sends."""
        while True:
            try:
                return send_batch(self._socket, byte, fds)
            except NoRoomYet:
                time.sleep(FULL_SECONDS)

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message and its descriptors, which are the caller's to close; None at the end.

        Raises:
            ProtocolError: a bad frame, or fewer descriptors than it says.
            CutFrame: the other end died while it sent one.
            OSError: the connection broke.
        """
        while not self._messages:
            data = self._read()
            if not data:
                if self._decoder.pending_bytes:
                    raise CutFrame("the stream ends inside a frame")
                return None
            self._messages.extend(self._decoder.feed(data))
        message = self._messages.popleft()
        count = message.get("fds", 0)
        if type(count) is not int or not 0 <= count <= len(self._fds):
            raise ProtocolError(f"a frame says {count!r} descriptors, {len(self._fds)} came")
        return message, [self._fds.popleft() for _ in range(count)]

    def _read(self) -> bytes:
        space = socket.CMSG_SPACE(BATCH_FDS * array.array("i").itemsize)
        data, ancillary, flags, _ = self._socket.recvmsg(_READ_BYTES, space, _CLOSE_ON_EXEC)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._keep(content)
        if flags & socket.MSG_CTRUNC:
            raise ProtocolError("more descriptors came than a frame may carry")
        return data

    def _keep(self, content: bytes) -> None:
        fds = array.array("i")
        fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        for fd in fds:
            os.set_inheritable(fd, False)
            self._fds.append(fd)

    def let_go(self) -> None:
        """Close a forked child's copy: who has forked it keeps the connection."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor; -1 after :meth:`close`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket and every descriptor that no receiver has taken. A thread that waits in
        :meth:`receive` sees the end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        while self._fds:
            os.close(self._fds.popleft())


def _connected(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
