"""Connections that other daemons open to this one, and send on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from elasticd.core.words.bulk import CHANGING
from elasticd.core.words.connections import CONNECTION, FETCH, OF_FETCH, FetchChallenge, Ping, Pong
from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.config import split_address
from elasticd.shell.network import transfer
from elasticd.shell.network.bulk import Bulk
from elasticd.shell.network.gate import Gate
from elasticd.shell.network.hello import ADDRESSES_OF_ONE, HELLO_BYTES, HELLO_SECONDS, Hello
from elasticd.shell.network.table import PeerTable
from elasticd.shell.network.tasks import Tasks
from elasticd.shell.network.transfer import READ_BYTES
from elasticd.shell.network.wires import PeerRun

MAX_CONNECTIONS = 4096
MAX_INCOMING = ADDRESSES_OF_ONE
"""Connections from one peer, which opens one to each of our addresses."""
MAX_STRANGERS = 128
"""Incoming connections that have not proved yet that they are live; a new one beyond it costs the
oldest its place, since a daemon proves it at once."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Acceptor:
    """Listens, finds out who has connected, and reads what they send.

    Attributes:
        learn: gets each hello, which says where else that daemon is to be found.
    """

    gate: Gate
    table: PeerTable
    bulk: Bulk
    tasks: Tasks
    learn: Callable[[Hello], None]
    _servers: list[asyncio.Server] = field(default_factory=list)
    _strangers: dict[asyncio.StreamWriter, None] = field(default_factory=dict)
    _closing: bool = False

    async def listen(self, address: str) -> None:
        """Accept connections there and wherever else we say that we are.

        Raises:
            OperationError: the address is in use or not this machine's.
        """
        try:
            await self._serve_at(address)
        except OSError as error:
            raise OperationError(f"can't listen on {address}: {error.strerror}") from None
        for other in self.gate.me.addresses:
            if other != address and self.gate.allows(split_address(other)[0]):
                # It may be no address of this machine's, or one that the first covers.
                try:
                    await self._serve_at(other)
                except OSError as error:
                    log.info("not listened on", address=other, reason=error.strerror)

    async def _serve_at(self, address: str) -> None:
        host, port = split_address(address)
        self._servers.append(await asyncio.start_server(self._accept, host, port))

    def stop(self) -> None:
        """Accept nothing more."""
        self._closing = True
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        for server in self._servers:
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing or len(self.tasks) >= MAX_CONNECTIONS:
            self.gate.complain("an incoming connection", f"{MAX_CONNECTIONS} are open already")
            writer.transport.abort()
            return
        transfer.tune(writer.transport)
        serving = self.tasks.start(self._serve(reader, writer))
        # One that is cancelled before it begins closes nothing itself.
        serving.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = "an incoming connection"
        self._strangers[writer] = None
        if len(self._strangers) > MAX_STRANGERS:
            next(iter(self._strangers)).transport.abort()
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await transfer.read_frame(reader, HELLO_BYTES)
                hello = await self._proved(first, reader, writer)
            self._strangers.pop(writer)
            if hello is None:
                await self.bulk.answer(first, writer)
                return
            source = hello.node
            if hello.node == self.gate.me.node:
                self.gate.complain_of_namesake(hello, hello.address)
            else:
                await self._hold(hello, reader, writer)
        except ProtocolError as error:
            self.gate.count_bad(source, str(error))
        except TimeoutError as error:
            self.gate.complain(source, error.strerror or "no hello came")
        except OSError as error:
            log.debug("connection failed", source=source, reason=str(error))
        finally:
            self._strangers.pop(writer, None)
            await transfer.close(writer)

    async def _proved(
        self, first: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Hello | None:
        """Who has connected, or None if it only fetches; it is live, and no recording."""
        if FETCH.knows(first):
            what = FETCH.decode(first).what
            if what in CHANGING and not await transfer.challenge(_to_fetch, reader, writer):
                raise ProtocolError(f"it wants to {what} and did not hear our answer")
            return None
        # The other side is told who we are even if we refuse it: it then knows why.
        try:
            hello = self.gate.check(first)
        except ProtocolError:
            writer.write(encode(self.gate.me.frame()))
            raise
        if not await transfer.challenge(self.gate.me.frame, reader, writer):
            raise ProtocolError(f"it says it is {hello.node[:80]!r} and did not hear our answer")
        return hello

    async def _hold(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Have a connection of a daemon that has proved to be live, until it ends."""
        self.learn(hello)
        peer = self.table.meet(hello)
        peer.incoming.append(writer)
        if len(peer.incoming) > MAX_INCOMING:
            peer.incoming.pop(0).transport.abort()
        self.table.more(peer)
        reason = "it closed its connection"
        try:
            await self._read_messages(peer, reader, writer)
        except OSError as error:
            reason = f"its connection failed: {error.strerror or error}"
        except (ProtocolError, *transfer.WRONG_SHAPE) as error:
            reason = f"it sent what no daemon sends: {error!r}"
            self.gate.count_bad(peer.node, reason)
            self.table.drop(peer, reason)
        finally:
            if writer in peer.incoming:
                peer.incoming.remove(writer)
            self.table.fewer(peer, reason)

    async def _read_messages(
        self, peer: PeerRun, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        decoder = Decoder()
        while data := await reader.read(READ_BYTES):
            for frame in decoder.feed(data):
                if CONNECTION.knows(frame):
                    writer.write(encode(CONNECTION.encode(_answer(frame))))
                    continue
                # It sends once it has seen both connections; we may see ours a moment later.
                await peer.known.wait()
                if not self.table.holds(peer):
                    return
                self.table.call.message(peer.node, frame)
        if decoder.pending_bytes:
            raise ProtocolError("its connection ended inside a frame")


def _to_fetch(challenge: str) -> dict[str, Any]:
    return OF_FETCH.encode(FetchChallenge(challenge))


def _answer(frame: dict[str, Any]) -> Pong:
    word = CONNECTION.decode(frame)
    if not isinstance(word, Ping):
        raise ProtocolError(f"{word.kind} on a connection that is open already")
    return Pong(word.n)
