"""The daemon's children: their processes, and the Unix socket over which they talk with it.

Docs/protocols.md §1 is the contract. A child may be hung, or lie: it can neither block the daemon
(sockets never block, queues have limits) nor keep its descriptors open, and a child that breaks the
protocol is killed, since every child's work can be redone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from elasticd.core.words.processes import (
    FROM_ANY_CHILD,
    NEWEST,
    OLDEST,
    TO_ANY_CHILD,
    Alive,
    ChildBye,
    ChildHello,
)
from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.frames import LongFrame, encode
from elasticd.shell.children.channel import (
    MAX_QUEUED_BYTES,
    Channel,
    Message,
    QueueFull,
    copies_of,
)
from elasticd.shell.children.launch import Launch, start
from elasticd.shell.complaints import Complaints
from elasticd.shell.inorder import InOrder
from elasticd.shell.tasks import reason
from elasticd.shell.unixsocket import bind_unix
from elasticd.supervision.exits import watch_exit
from elasticd.supervision.process import AdoptedProcess, OwnProcess
from elasticd.supervision.roster import ChildEntry, ChildRoster
from elasticd.types import Role

SOCKET_NAME = "children.sock"
ROSTER_NAME = "children.json"
GRACE_SECONDS = 30.0
ALIVE_A_GRACE = 6
"""How often a child hears of its daemon within its grace, so that a busy machine costs no child."""
HELLO_SECONDS = 10.0
START_SECONDS = 1.0
"""The end of a daemon waits so long for a start that has begun, and a disk that hangs."""
MAX_STRANGERS = 64
"""Connections that have not said hello; a new one beyond it costs the oldest its place, since a
child says hello at once."""

log = structlog.get_logger(__name__)


class Child:
    """One running process of the daemon; made by :meth:`ChildServer.spawn` and
    :meth:`ChildServer.adopt`.

    Attributes:
        create_time: Unix seconds, as psutil gives it; with ``pid`` it names the process for ever.
        ended: whether it has.
        status: of one that has ended its exit code, or minus the signal; None: not known.
        failed: what we could not do for it, so that it was killed.
    """

    def __init__(self, entry: ChildEntry, process: OwnProcess | AdoptedProcess) -> None:
        self.entry = entry
        self.role: Role = entry.role
        self.nonce, self.pid = entry.nonce, entry.pid
        self.create_time = entry.create_time
        self.log = Path(entry.log)
        self.adopted = isinstance(process, AdoptedProcess)
        self.ended = False
        self.status: int | None = None
        self.failed = ""
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

    @property
    def greeted(self) -> bool:
        """Whether it has ever said hello."""
        return self._channel is not None

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a frame with copies of ``fds``; the caller keeps its own.

        Frames for a child that has not said hello yet wait for that; frames for one that has ended
        or closed its socket are dropped. A child that lets more than :data:`MAX_QUEUED_BYTES` pile
        up is killed.

        Raises:
            ProtocolError: the frame is too long for any child.
            OSError: no descriptors left.
        """
        if self.ended:
            return
        try:
            if self._channel is not None:
                self._channel.send(message, fds)
            else:
                self._send_later(message, fds)
        except (QueueFull, LongFrame) as error:
            log.warning("child killed", child=repr(self), reason=str(error))
            self.kill(signal.SIGKILL)

    def _send_later(self, message: Mapping[str, Any], fds: Sequence[int]) -> None:
        self._early_bytes += len(encode(message))
        if self._early_bytes > MAX_QUEUED_BYTES:
            raise QueueFull(f"{self._early_bytes} bytes wait for its hello")
        self._early.append((dict(message), copies_of(fds)))

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; nothing if it has ended. SIGKILL goes to all that it started, too."""
        if not self.ended:
            self._process.signal(number)

    def fail(self, why: str) -> None:
        """Kill it, since this daemon could not do something for it: what it does can be done
        again."""
        self.failed = f"elasticd: killed, since this node's daemon failed to serve it: {why}"
        log.error("child killed", child=repr(self), reason=why)
        with contextlib.suppress(OSError):
            self.kill()

    async def wait(self) -> int | None:
        """Its status, once ``on_exit`` has been called."""
        await self._exited.wait()
        return self.status

    def _connect(self, channel: Channel) -> None:
        self._channel = channel
        early, self._early = self._early, []
        for message, fds in early:
            self.send(message, fds)
            _close_all(fds)

    def _reap(self) -> None:
        status = self._process.reap()
        if self._channel is not None:
            self._channel.close()
        for _, fds in self._early:
            _close_all(fds)
        self._early.clear()
        self.ended = True
        # What the kernel says counts; of a process that isn't ours it says nothing.
        self.status = self.status if status is None else status


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


OnMessage = Callable[[Child, Message, list[int]], None]
OnExit = Callable[[Child, int | None], None]


class ChildServer:
    """Starts children, listens for them on ``HOME/children.sock``, and sees them end.

    ``disk`` does, beside the loop, what is to be done to files of children that run.

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
        alive_seconds: float | None = None,
        grace_seconds: float = GRACE_SECONDS,
        mute: Callable[[], bool] = lambda: False,
    ) -> None:
        """``mute``: whether children are to take this daemon for one that stands still."""
        self._home = home.absolute()
        self._on_message = on_message
        self._on_exit = on_exit
        self._alive_seconds = alive_seconds or grace_seconds / ALIVE_A_GRACE
        self._grace_seconds = grace_seconds
        self._mute = mute
        self._roster = ChildRoster(self._home / ROSTER_NAME)
        self.disk = InOrder("children")
        self._ends = False
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

    def adopt(self) -> list[Child]:
        """Take over the children that a daemon before us has left running. They say hello again
        once we listen; their number is that of the calls of ``on_exit`` still to come. To be called
        before the first :meth:`spawn`.
        """
        adopted = [Child(entry, AdoptedProcess(entry)) for entry in self._roster.take_over()]
        for child in adopted:
            self._children[child.nonce] = child
            self._watch(child)
        return adopted

    def _watch(self, child: Child) -> None:
        self._watches[child.nonce] = watch_exit(child.pid, lambda: self._ended(child))

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket can't be made in HOME.
        """
        self._listener = bind_unix(self._home / SOCKET_NAME)
        self._send_alive()

    def spawn(
        self,
        launch: Callable[[], Launch],
        started: Callable[[Child], None],
        failed: Callable[[str], None],
    ) -> None:
        """Start a process in a session of its own, with nothing of ours but its log file.

        All that waits for the disk, ``launch`` too, is done beside the loop. Then ``started`` is
        called in it, or ``failed`` with the reason: no such program or folder, too many processes,
        a full disk.

        The thread that has started a process writes it down before it does anything else, so that a
        daemon that dies leaves none unknown. Only a disk that hangs between the two lets one work
        before it is written down; if we die then, it ends by its grace.
        """
        self.disk.do(
            partial(self._spawn, launch, started), partial(self._not_spawned, failed=failed)
        )

    def _spawn(
        self, launch: Callable[[], Launch], started: Callable[[Child], None]
    ) -> Exception | None:
        """In the disk's thread: why there is no process."""
        try:
            told = launch()
            if self._ends:
                raise OperationError("this node's daemon ends")
            process = OwnProcess(start(told, self._environment(told)))
        except Exception as error:
            return error
        entry = ChildEntry(
            process.pid, process.create_time, told.role, told.nonce, told.job, told.spare,
            str(told.log), process.born,
        )  # fmt: skip
        self.disk.tell(lambda child: self._born(child, started), (entry, process))
        self.disk.tell(partial(self._written_down, entry), self._write_down(entry))
        return None

    def _environment(self, launch: Launch) -> dict[str, str]:
        told = {
            **launch.settings,
            "socket": str(self._home / SOCKET_NAME),
            "nonce": launch.nonce,
            "role": launch.role,
            "grace_seconds": self._grace_seconds,
        }
        return {**launch.environment, "ELASTICD_CHILD": json.dumps(told)}

    def _born(self, one: tuple[ChildEntry, OwnProcess], started: Callable[[Child], None]) -> None:
        child = Child(*one)
        self._children[child.nonce] = child
        self._watch(child)
        started(child)
        if self._ends:  # its start hung for longer than the end of all children waits
            child.kill()

    def _not_spawned(self, error: Exception | None, failed: Callable[[str], None]) -> None:
        if error is not None:
            failed(reason("starting a process", error))

    def _write_down(self, entry: ChildEntry) -> OSError | None:
        """In the disk's thread: why it can't be done."""
        try:
            self._roster.add(entry)
        except OSError as error:
            return error
        return None

    def _written_down(self, entry: ChildEntry, error: OSError | None) -> None:
        child = self._children.get(entry.nonce)
        if error is not None and child is not None:
            # One that a later daemon would not know of must not run.
            child.fail(f"it can't be written down: {error}")

    def log_moved(self, child: Child, log: Path) -> None:
        """The file that the child prints to has another name now."""
        child.log, child.entry = log, replace(child.entry, log=str(log))
        if not child.ended:
            self.disk.do(partial(self._write_down, child.entry), _log_is_noted)

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors left, say
                self.complaints("a child", f"it can't be let in: {error}")
                # It waits in the backlog until the next look: the loop would be told of it at once.
                asyncio.get_running_loop().remove_reader(self._listener.fileno())
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
            hello = _hello(message)
            child = self._children.get(hello.nonce)
            if child is None or child._channel is not None:
                raise ProtocolError("hello of no child that waits for one")
            known.append(child)
            self._strangers.pop(channel).cancel()
            if not OLDEST <= hello.version <= NEWEST:
                raise ProtocolError(
                    f"it speaks version {hello.version} and this daemon {OLDEST} to {NEWEST}:"
                    " another is started in its place"
                )
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
        if not FROM_ANY_CHILD.knows(message) and not child.ended:
            self._on_message(child, message, fds)
            return
        _close_all(fds)
        if FROM_ANY_CHILD.knows(message):
            word = FROM_ANY_CHILD.decode(message)
            if not isinstance(word, ChildBye):
                raise ProtocolError("it said hello already")
            child.status = word.status

    def _give_up(self, channel: Channel, reason: str) -> None:
        self._strangers.pop(channel).cancel()
        channel.close()
        self.complaints("a stranger", reason)

    def _ended(self, child: Child) -> None:
        # Its last words may still be in the socket, or even the connection in the backlog.
        if self._listener is not None:
            self._accept()
        for channel in tuple(self._strangers):
            channel.drain()
        if child._channel is not None:
            child._channel.drain()
        self._watches.pop(child.nonce)
        child._reap()
        del self._children[child.nonce]
        self.disk.do(partial(self._strike, child.entry))
        try:
            self._on_exit(child, child.status)
        finally:
            child._exited.set()

    def _strike(self, entry: ChildEntry) -> None:
        """In the disk's thread."""
        with contextlib.suppress(OSError):  # a pid too many in it does no harm
            self._roster.remove(entry)

    def _send_alive(self) -> None:
        loop = asyncio.get_running_loop()
        if self._listener is not None:
            loop.add_reader(self._listener.fileno(), self._accept)
        for child in () if self._mute() else self.children:
            # A child that has not taken the frames before gains nothing from one more.
            if child._channel is not None and child._channel.queued_bytes == 0:
                child.send(TO_ANY_CHILD.encode(Alive()))
        self._alive_timer = loop.call_later(self._alive_seconds, self._send_alive)

    async def stop_all(self, deadline_seconds: float) -> None:
        """End every child: SIGTERM, after ``deadline_seconds`` SIGKILL; returns when all are
        reaped. No other is started any more.
        """
        self._ends = True
        await self.disk.flushed(max(deadline_seconds, START_SECONDS))
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
        await self.disk.flushed(START_SECONDS)

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


def _log_is_noted(error: OSError | None) -> None:
    if error is not None:  # who takes the child over looks where it was, too
        log.warning("where a child prints is not written down", reason=str(error))


def _hello(message: Message) -> ChildHello:
    word = FROM_ANY_CHILD.decode(message)
    if not isinstance(word, ChildHello):
        raise ProtocolError("its first frame is no hello")
    return word
