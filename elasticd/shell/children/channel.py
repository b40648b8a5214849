"""Frames and descriptors between the daemon and one child, in the event loop."""

from __future__ import annotations

import array
import asyncio
import contextlib
import math
import os
import socket
import stat
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elasticd.errors import ProtocolError
from elasticd.ipc.frames import (
    BATCH_FDS,
    FULL_SECONDS,
    MAX_FRAME_BYTES,
    MAX_FRAME_FDS,
    Decoder,
    NoRoomYet,
    encode,
    send_batch,
)

MAX_QUEUED_BYTES = 2 * MAX_FRAME_BYTES
"""What may wait for a child that doesn't read; beyond it the child is taken for hung and killed."""
MAX_LAST_READS = 1024
MAX_HELD_FDS = 2 * BATCH_FDS
"""What a child may have sent and no frame has claimed yet: children send few."""
HOLDS_SOCKETS = sys.platform == "darwin"
"""macOS takes a socket that is on its way, and that nobody has open, for garbage as soon as any
other is closed, and shuts it down (XNU, ``unp_gc``): a copy stays open until it has been taken."""
SETTLED_SECONDS = 1.0
"""What the other end says so long after it was sent a socket it has said with that one open."""
HELLO_BYTES = 64 * 1024
"""The longest first frame."""

_READ_BYTES = 256 * 1024
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

Message = dict[str, Any]


def copies_of(fds: Sequence[int]) -> list[int]:
    """Descriptors of the same files, all of them or none. Raises OSError: none are left."""
    copies: list[int] = []
    try:
        for fd in fds:
            copies.append(os.dup(fd))
    except BaseException:
        for copy in copies:
            os.close(copy)
        raise
    return copies


class QueueFull(ProtocolError):
    """The other end does not read what it is sent."""


class Channel:
    """Frames and descriptors over one non-blocking Unix stream socket, in the running loop.

    ``on_message`` owns the descriptors that it is given. ``on_closed`` comes once, when the other
    end has closed (reason None) or has broken the protocol (the reason), but not after
    :meth:`close`.
    """

    def __init__(
        self,
        connection: socket.socket,
        on_message: Callable[[Message, list[int]], None],
        on_closed: Callable[[str | None], None],
        holds_sockets: bool = HOLDS_SOCKETS,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._on_message = on_message
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(HELLO_BYTES)
        self._fds: deque[int] = deque()
        self._holds_sockets = holds_sockets
        self._sent: deque[tuple[float, int]] = deque()
        """Sockets that the other end may not have taken yet, each with when it was sent."""
        self._queue: deque[tuple[memoryview, list[int]]] = deque()
        self._queued_bytes = 0
        self._writing = False
        self._pausing = False
        """Descriptors found no room, and will be tried again."""
        self.closed = False
        self._loop.add_reader(connection.fileno(), self._read_once)

    @property
    def queued_bytes(self) -> int:
        """What the other end has not taken yet, beyond the kernel's buffer."""
        return self._queued_bytes

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send or queue a frame with copies of ``fds``; nothing once the channel is closed.

        Raises:
            QueueFull: more than :data:`MAX_QUEUED_BYTES` would wait.
            ProtocolError: the frame is too long, or carries too many descriptors.
            OSError: no descriptors left.
        """
        if self.closed:
            return
        if len(fds) > MAX_FRAME_FDS or message.get("fds", len(fds)) != len(fds):
            raise ProtocolError(f"{len(fds)} descriptors do not fit the frame")
        frame = encode({**message, "fds": len(fds)} if fds else message)
        if self._queued_bytes + len(frame) > MAX_QUEUED_BYTES:
            raise QueueFull(f"{self._queued_bytes} bytes wait that it does not read")
        self._queue.append((memoryview(frame), copies_of(fds)))
        self._queued_bytes += len(frame)
        if not self._writing and not self._pausing:
            self._write()

    def _write(self) -> None:
        self._pausing = False
        try:
            while self._queue:
                self._write_first()
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket.fileno(), self._write)
            return
        except NoRoomYet:
            self._pausing = True
            self._loop.call_later(FULL_SECONDS, self._write)
        except OSError:
            # The other end has gone. What it sent before is still to be read, so the reader, who
            # meets the end in its turn, closes. Or the kernel refused a part of a frame: the other
            # end would read nonsense behind that, and is to meet the end, too.
            self._drop_queue()
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _write_first(self) -> None:
        data, fds = self._queue[0]
        if fds:
            batch = fds[:BATCH_FDS]
            sent = send_batch(self._socket, data[:1], batch)
            del fds[:BATCH_FDS]
            for fd in batch:
                if self._holds_sockets and stat.S_ISSOCK(os.fstat(fd).st_mode):
                    self._sent.append((self._loop.time(), fd))
                else:
                    os.close(fd)
        else:
            sent = self._socket.send(data)
        self._queued_bytes -= sent
        if sent < len(data):
            self._queue[0] = (data[sent:], fds)
        else:
            self._queue.popleft()

    def _let_go(self, until: float) -> None:
        """Of sockets that were sent by then."""
        while self._sent and self._sent[0][0] <= until:
            os.close(self._sent.popleft()[1])

    def _drop_queue(self) -> None:
        for _, fds in self._queue:
            for fd in fds:
                os.close(fd)
        self._queue.clear()
        self._queued_bytes = 0

    def drain(self) -> None:
        """Deliver now everything that the kernel holds: a dead child's last words."""
        for _ in range(MAX_LAST_READS):
            if self.closed or not self._read_once():
                return

    def _read_once(self) -> bool:
        """Whether something was read and more may be there."""
        try:
            data = self._receive()
            if data:
                self._let_go(self._loop.time() - SETTLED_SECONDS)
                for message in self._decoder.feed(data):
                    if self.closed:
                        return False
                    self._on_message(message, self._take_fds(message))
                return not self.closed
            reason = "the stream ends inside a frame" if self._decoder.pending_bytes else None
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            reason = None
        except ProtocolError as error:
            reason = str(error)
        if not self.closed:
            self.close()
            self._on_closed(reason)
        return False

    def _receive(self) -> bytes:
        space = socket.CMSG_SPACE(BATCH_FDS * array.array("i").itemsize)
        data, ancillary, flags, _ = self._socket.recvmsg(_READ_BYTES, space, _CLOSE_ON_EXEC)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self._fds.extend(fds)
                for fd in fds:
                    os.set_inheritable(fd, False)
        if flags & socket.MSG_CTRUNC or len(self._fds) > MAX_HELD_FDS:
            raise ProtocolError("more descriptors came than frames asked for")
        return data

    def _take_fds(self, message: Message) -> list[int]:
        count = message.get("fds", 0)
        if type(count) is not int or not 0 <= count <= len(self._fds):
            raise ProtocolError(f"a frame says {count!r} descriptors, {len(self._fds)} came")
        return [self._fds.popleft() for _ in range(count)]

    def close(self) -> None:
        """Close the socket and every descriptor that nobody took. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._socket.fileno())
        if self._writing:
            self._loop.remove_writer(self._socket.fileno())
        self._drop_queue()
        self._let_go(math.inf)
        self._socket.close()
        while self._fds:
            os.close(self._fds.popleft())
