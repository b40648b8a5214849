"""The daemon's children: their processes, and the Unix socket over which they talk with it.

Docs/protocols.md §1 is the contract. A child may be hung, or lie: it can neither block the daemon
(sockets never block, queues have limits) nor keep its descriptors open, and a child that breaks the
protocol is killed, since every child's work can be redone.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import structlog

from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.frames import MAX_FRAME_BYTES, MAX_FRAME_FDS, Decoder, encode
from elasticd.shell.complaints import Complaints
from elasticd.shell.control import bind_unix
from elasticd.supervision.exits import watch_exit
from elasticd.supervision.logs import RotatedLog
from elasticd.supervision.roster import Entry, Roster, kill_group

SOCKET_NAME = "children.sock"
ROSTER_NAME = "children.json"
ALIVE_SECONDS = 5.0
GRACE_SECONDS = 30.0
HELLO_SECONDS = 10.0
MAX_STRANGERS = 64
"""Connections that have not said hello; a new one beyond it costs the oldest its place, since a
child says hello at once."""
HELLO_BYTES = 64 * 1024
"""The longest first frame."""
MAX_QUEUED_BYTES = 2 * MAX_FRAME_BYTES
"""What may wait for a child that doesn't read; beyond it the child is taken for hung and killed."""

_HEADER_BYTES = struct.calcsize(">I")
_READ_BYTES = 256 * 1024
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

MAX_LAST_READS = 1024

log = structlog.get_logger(__name__)

Message = dict[str, Any]


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
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._on_message = on_message
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder(HELLO_BYTES)
        self._fds: deque[int] = deque()
        self._queue: deque[tuple[memoryview, list[int]]] = deque()
        self._queued_bytes = 0
        self._writing = False
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
        """
        if self.closed:
            return
        if len(fds) > MAX_FRAME_FDS or message.get("fds", len(fds)) != len(fds):
            raise ProtocolError(f"{len(fds)} descriptors do not fit the frame")
        frame = encode({**message, "fds": len(fds)} if fds else message)
        if self._queued_bytes + len(frame) > MAX_QUEUED_BYTES:
            raise QueueFull(f"{self._queued_bytes} bytes wait that it does not read")
        self._queue.append((memoryview(frame), [os.dup(fd) for fd in fds]))
        self._queued_bytes += len(frame)
        if not self._writing:
            self._write()

    def _write(self) -> None:
        try:
            while self._queue:
                self._write_first()
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket.fileno(), self._write)
            return
        except OSError:
            # The other end has gone. What it sent before is still to be read, so the reader, who
            # meets the end in its turn, closes.
            self._drop_queue()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _write_first(self) -> None:
        data, fds = self._queue[0]
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = self._socket.sendmsg([data[:_HEADER_BYTES]], rights)
            while fds:
                os.close(fds.pop())
        else:
            sent = self._socket.send(data)
        self._queued_bytes -= sent
        if sent < len(data):
            self._queue[0] = (data[sent:], fds)
        else:
            self._queue.popleft()

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
        space = socket.CMSG_SPACE(MAX_FRAME_FDS * array.array("i").itemsize)
        data, ancillary, flags, _ = self._socket.recvmsg(_READ_BYTES, space, _CLOSE_ON_EXEC)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
                self._fds.extend(fds)
                for fd in fds:
                    os.set_inheritable(fd, False)
        if flags & socket.MSG_CTRUNC or len(self._fds) > 2 * MAX_FRAME_FDS:
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
        self._socket.close()
        while self._fds:
            os.close(self._fds.popleft())


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        role: ``trainer`` or ``reducer``.
        command: absolute interpreter and arguments.
        folder: working folder of the process.
        log: its stdout and stderr, appended to.
        environment: the whole environment, without ``ELASTICD_CHILD``.
        settings: keys of ``ELASTICD_CHILD`` beside socket, nonce, role and grace_seconds.
    """

    role: str
    command: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)


class Child:
    """One running process that the daemon has started; made by :meth:`ChildServer.spawn`.

    Attributes:
        create_time: Unix seconds, as psutil gives it; with ``pid`` it names the process for ever.
        status: None while it runs; then its exit code, or minus the signal that ended it.
    """

    def __init__(self, launch: Launch, nonce: str, process: subprocess.Popen[bytes]) -> None:
        self.launch = launch
        self.role = launch.role
        self.nonce = nonce
        self.pid = process.pid
        self.create_time = _create_time(process.pid)
        self.status: int | None = None
        self._process = process
        self._channel: Channel | None = None
        self._early: list[tuple[Mapping[str, Any], list[int]]] = []
        self._early_bytes = 0
        self._exited = asyncio.Event()

    def __repr__(self) -> str:
        return f"<{self.role} {self.pid}>"

    @property
    def connected(self) -> bool:
        """Whether it has said hello and its socket is open."""
        return self._channel is not None and not self._channel.closed

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a frame with copies of ``fds``; the caller keeps its own.

        Frames for a child that has not said hello yet wait for that; frames for one that has ended
        or closed its socket are dropped. A child that lets more than :data:`MAX_QUEUED_BYTES` pile
        up is killed.

        Raises:
            ProtocolError: the frame is too long for any child.
        """
        if self.status is not None:
            return
        try:
            if self._channel is not None:
                self._channel.send(message, fds)
            else:
                self._send_later(message, fds)
        except QueueFull as error:
            log.warning("child killed", child=repr(self), reason=str(error))
            self.kill(signal.SIGKILL)

    def _send_later(self, message: Mapping[str, Any], fds: Sequence[int]) -> None:
        self._early_bytes += len(encode(message))
        if self._early_bytes > MAX_QUEUED_BYTES:
            raise QueueFull(f"{self._early_bytes} bytes wait for its hello")
        self._early.append((dict(message), [os.dup(fd) for fd in fds]))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; nothing if it has ended. SIGKILL goes to all that it started, too."""
        if self.status is not None:
            return
        if number == signal.SIGKILL:
            kill_group(self.pid)
        else:
            os.kill(self.pid, number)  # unreaped, so the pid is still its own

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it, once ``on_exit`` has been called."""
        await self._exited.wait()
        assert self.status is not None
        return self.status

    def _connect(self, channel: Channel) -> None:
        self._channel = channel
        early, self._early = self._early, []
        for message, fds in early:
            self.send(message, fds)
            _close_all(fds)

    def _reap(self) -> int:
        status = self._process.wait()
        if self._channel is not None:
            self._channel.close()
        for _, fds in self._early:
            _close_all(fds)
        self._early.clear()
        self.status = status
        return status


def _create_time(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:  # it has ended already, and macOS tells little about zombies
        return time.time()


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


OnMessage = Callable[[Child, Message, list[int]], None]
OnExit = Callable[[Child, int], None]


class ChildServer:
    """Starts children, listens for them on ``HOME/children.sock``, and sees them end.

    Callbacks run in the loop. ``on_message(child, message, fds)`` gets every frame after hello and
    owns the descriptors; if it raises ProtocolError the child is killed. ``on_exit(child, status)``
    comes exactly once for each child, after its last message.
    """

    def __init__(
        self,
        home: Path,
        on_message: OnMessage,
        on_exit: OnExit,
        *,
        alive_seconds: float = ALIVE_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._home = home.absolute()
        self._on_message = on_message
        self._on_exit = on_exit
        self._alive_seconds = alive_seconds
        self._grace_seconds = grace_seconds
        self._roster = Roster(self._home / ROSTER_NAME)
        self._children: dict[str, Child] = {}
        self._watches: dict[str, Callable[[], None]] = {}
        self._strangers: dict[Channel, asyncio.TimerHandle] = {}
        self.complaints = Complaints("children")
        self._listener: socket.socket | None = None
        self._alive_timer: asyncio.TimerHandle | None = None

    @property
    def children(self) -> tuple[Child, ...]:
        """Those that have not ended, in the order of their start."""
        return tuple(self._children.values())

    def end_leftovers(self) -> list[Entry]:
        """Kill what a crashed daemon of this home left; blocks until it is gone, at most 5 s."""
        return self._roster.end_leftovers()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket can't be made in HOME.
        """
        self._listener = bind_unix(self._home / SOCKET_NAME)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
        self._send_alive()

    def spawn(self, launch: Launch) -> Child:
        """Start a process in a session of its own, with nothing of ours but its log file.

        Raises:
            OperationError: it can't be started: no such program or folder, too many processes.
        """
        nonce = secrets.token_hex(16)
        environment = {
            **launch.environment,
            "ELASTICD_CHILD": json.dumps(
                {
                    **launch.settings,
                    "socket": str(self._home / SOCKET_NAME),
                    "nonce": nonce,
                    "role": launch.role,
                    "grace_seconds": self._grace_seconds,
                }
            ),
        }
        child = Child(launch, nonce, _start(launch, environment))
        self._children[nonce] = child
        self._roster.add(Entry(child.pid, child.create_time, child.role))
        self._watches[nonce] = watch_exit(child.pid, lambda: self._ended(child))
        return child

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            if len(self._strangers) >= MAX_STRANGERS:
                self._give_up(next(iter(self._strangers)), "too many have not said hello")
            self._meet(connection)

    def _meet(self, connection: socket.socket) -> None:
        known: list[Child] = []

        def on_message(message: Message, fds: list[int]) -> None:
            if known:
                self._deliver(known[0], message, fds)
                return
            _close_all(fds)
            child = self._children.get(_nonce(message))
            if child is None or child._channel is not None:
                raise ProtocolError("hello of no child that waits for one")
            known.append(child)
            self._strangers.pop(channel).cancel()
            child._connect(channel)

        def on_closed(reason: str | None) -> None:
            if (timer := self._strangers.pop(channel, None)) is not None:
                timer.cancel()
                self.complaints("a stranger", reason or "it ended without hello")
            elif reason is not None:
                log.warning("child killed", child=repr(known[0]), reason=reason)
                known[0].kill(signal.SIGKILL)

        channel = Channel(connection, on_message, on_closed)
        self._strangers[channel] = asyncio.get_running_loop().call_later(
            HELLO_SECONDS, self._give_up, channel, f"no hello within {HELLO_SECONDS:g} s"
        )

    def _deliver(self, child: Child, message: Message, fds: list[int]) -> None:
        if child.status is None:
            self._on_message(child, message, fds)
        else:
            _close_all(fds)

    def _give_up(self, channel: Channel, reason: str) -> None:
        self._strangers.pop(channel).cancel()
        channel.close()
        self.complaints("a stranger", reason)

    def _ended(self, child: Child) -> None:
        # While the zombie holds the pid, its group can't be anybody else's.
        kill_group(child.pid)
        # Its last words may still be in the socket, or even the connection in the backlog.
        if self._listener is not None:
            self._accept()
        for channel in tuple(self._strangers):
            channel.drain()
        if child._channel is not None:
            child._channel.drain()
        self._watches.pop(child.nonce)
        status = child._reap()
        del self._children[child.nonce]
        self._roster.remove(child.pid)
        try:
            self._on_exit(child, status)
        finally:
            child._exited.set()

    def _send_alive(self) -> None:
        for child in self.children:
            # A child that has not taken the frames before gains nothing from one more.
            if child._channel is not None and child._channel.queued_bytes == 0:
                child.send({"t": "alive"})
        loop = asyncio.get_running_loop()
        self._alive_timer = loop.call_later(self._alive_seconds, self._send_alive)

    async def stop_all(self, deadline_seconds: float) -> None:
        """End every child: SIGTERM, after ``deadline_seconds`` SIGKILL; returns when all are
        reaped.
        """
        children = self.children
        for child in children:
            child.kill(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_seconds):
                for child in children:
                    await child.wait()
        for child in children:
            child.kill(signal.SIGKILL)
        for child in children:
            await child.wait()

    async def close(self) -> None:
        """End every child at once, stop listening, and remove the socket."""
        await self.stop_all(0)
        if self._alive_timer is not None:
            self._alive_timer.cancel()
        for channel, timer in self._strangers.items():
            timer.cancel()
            channel.close()
        self._strangers.clear()
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
            (self._home / SOCKET_NAME).unlink(missing_ok=True)


def _nonce(message: Message) -> str:
    nonce = message.get("nonce")
    return nonce if message.get("t") == "hello" and isinstance(nonce, str) else ""


def _start(launch: Launch, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    try:
        output = RotatedLog(launch.log).open_append()
        try:
            return subprocess.Popen(
                list(launch.command),
                cwd=launch.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                close_fds=True,
                start_new_session=True,
            )
        finally:
            os.close(output)
    except OSError as error:
        raise OperationError(f"{launch.role} does not start: {error}") from error
