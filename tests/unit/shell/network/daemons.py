"""For the tests beside this: daemons' connections over loopback, peers by hand, cables."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.frames import encode
from elasticd.settings.config import split_address
from elasticd.shell.network import transfer
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.hello import Identity
from elasticd.shell.network.peers import Peers
from elasticd.shell.tasks import cancel
from elasticd.trust.renewal import Renewal
from elasticd.types import NodeId
from tests.members import credentials
from tests.ports import free_address

Run = Callable[[Coroutine[Any, Any, None]], None]


async def until(true: Callable[[], object]) -> None:
    """For states that nobody announces; the fixture bounds the time."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


class Daemon:
    """Peers under test, and what they called back with, in order."""

    def __init__(
        self,
        node: str,
        *addresses: str,
        own: str = "",
        boot: str = "boot-1",
        cluster: str = "test",
        advertised: tuple[str, ...] = (),
        listen: str = "",
    ) -> None:
        self.address = own or free_address()
        self.seen: list[tuple[Any, ...]] = []
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, int] = {}
        self.ready = asyncio.Event()
        self.ready.set()
        self.waiting = 0
        """So many wait for an answer."""
        self._news = asyncio.Event()
        self.credentials = credentials(node, cluster)
        own_addresses = advertised or (self.address,)
        me = Identity(NodeId(node), boot, self.address, addresses=own_addresses)
        self.told_to_renew: list[Renewal] = []
        self.takes_told: Callable[[Renewal], None] = lambda wanted: None
        calls = Callbacks(
            self._up, self._down, self._message, self._serve, self._moved,
            must_renew=self._told_to_renew,
        )  # fmt: skip
        self.peers = Peers(me, listen or self.address, addresses, calls, self.credentials)

    def _up(self, node: NodeId, boot: str, address: str) -> None:
        self.seen.append(("up", node, boot))
        self._news.set()

    def _moved(self, node: NodeId, boot: str, address: str) -> None:
        self.seen.append(("moved", node, address))
        self._news.set()

    def _told_to_renew(self, wanted: Renewal) -> None:
        self.told_to_renew.append(wanted)
        self.takes_told(wanted)

    def _down(self, node: NodeId, boot: str, reason: str) -> None:
        self.seen.append(("down", node, boot))
        self._news.set()

    def _message(self, node: NodeId, frame: dict[str, Any]) -> None:
        assert node in self.peers.connected()
        if frame["t"] == "nonsense":
            raise ProtocolError("nonsense")
        self.received.append((node, frame))
        self._news.set()

    async def _serve(self, request: dict[str, Any]) -> int:
        self.waiting += 1
        try:
            await self.ready.wait()
        finally:
            self.waiting -= 1
        if request["what"] == "missing":
            raise OperationError("it isn't here")
        return os.dup(self.files[request["what"]])

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._news.clear()
            await self._news.wait()

    async def until_seen(self, *what: Any) -> None:
        await self.until(lambda: what in self.seen)


@contextlib.asynccontextmanager
async def running(*daemons: Daemon) -> AsyncIterator[None]:
    try:
        for daemon in daemons:
            await daemon.peers.start()
        yield
    finally:
        for daemon in daemons:
            await daemon.peers.close()


async def shake(address: str, frame: dict[str, Any], node: str = "") -> dict[str, Any]:
    """Say hello as a member, return the answer, hang up."""
    reader, writer = await transfer.connect(address, credentials(node or frame["node"]))
    writer.write(encode(frame))
    answer = await transfer.read_frame(reader, 1 << 16)
    await transfer.close(writer)
    return answer


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def met() -> AsyncIterator[tuple[Daemon, Daemon]]:
    """Daemons a and b, of which a has dialled b."""
    b = Daemon("b")
    a = Daemon("a", b.address)
    async with running(a, b):
        await a.until_seen("up", "b", "boot-1")
        await b.until_seen("up", "a", "boot-1")
        yield a, b


@contextlib.asynccontextmanager
async def serving(node: str, answer: Answer, address: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """A member by hand: where it listens. It answers each connection with ``answer``, which closes
    it."""
    context = credentials(node).incoming
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listening:
        listening.setblocking(False)

        async def serve(accepted: socket.socket) -> None:
            with contextlib.suppress(OSError):
                await loop.sock_recv(accepted, 1)
                await answer(*await transfer.accept(accepted, context))

        async def accept() -> None:
            while True:
                accepted, _ = await loop.sock_accept(listening)
                tasks.add(asyncio.create_task(serve(accepted)))

        tasks = {asyncio.create_task(accept())}
        try:
            host, bound = listening.getsockname()
            yield f"{host}:{bound}"
        finally:
            await cancel(tuple(tasks))


class Cable:
    """A relay between an address of its own and another: a path that can fall silent or be cut."""

    def __init__(self, target: str) -> None:
        self.address = free_address()
        self.target = target
        self.silent = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.recorded: list[bytearray] = []
        """What went to the target, of each connection."""

    async def __aenter__(self) -> Cable:
        host, _, port = self.address.rpartition(":")
        self.server = await asyncio.start_server(self._accept, host, int(port))
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*split_address(self.target))
        self._writers += [writer, back]
        self.recorded.append(bytearray())
        for source, sink, record in ((reader, back, self.recorded[-1]), (there, writer, None)):
            task = asyncio.create_task(self._pump(source, sink, record))
            self._tasks.add(task)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        record: bytearray | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if record is not None:
                    record += data
                if not self.silent:
                    sink.write(data)
        sink.close()

    def cut(self) -> None:
        self.server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await asyncio.gather(*self._tasks)


class RawPeer:
    """A peer by hand: answers hello and then does what the test says."""

    def __init__(self, daemon: Daemon) -> None:
        self.address = free_address()
        me = daemon.peers.me
        own = self.address
        self.hello = replace(me, node=NodeId("raw"), address=own, addresses=(own,)).frame()
        self.daemon = daemon
        self._writers: list[asyncio.StreamWriter] = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> RawPeer:
        await self._stack.enter_async_context(serving("raw", self._greet, self.address))
        self.reader, self.writer = await transfer.connect(self.daemon.address, credentials("raw"))
        self._writers.append(self.writer)
        self.writer.write(encode(self.hello))
        await transfer.read_frame(self.reader, 1 << 16)
        await self.daemon.until_seen("up", "raw", "boot-1")
        return self

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) > 1:  # it is dialled again after it was dropped
            writer.transport.abort()
            return
        self._writers.append(writer)
        await transfer.read_frame(reader, 1 << 16)
        writer.write(encode(self.hello))
        reader._transport.pause_reading()  # type: ignore[attr-defined]

    async def __aexit__(self, *_: object) -> None:
        await self.daemon.peers.close()  # or it would dial while we close
        await self._stack.aclose()
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def nameless(data: bytes) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())
