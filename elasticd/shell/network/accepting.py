"""Connections that other daemons open to this one, and send on."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

import structlog

from elasticd.core.words.connections import CONNECTION, Errand, Ping, Pong
from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.accepting import Unproven, next_connection
from elasticd.ipc.frames import Decoder, encode
from elasticd.shell.network import transfer
from elasticd.shell.network.binding import bound
from elasticd.shell.network.bulk import Bulk
from elasticd.shell.network.credentials import Superseded, reason_of
from elasticd.shell.network.gate import Gate
from elasticd.shell.network.hello import (
    ADDRESSES_OF_ONE,
    HELLO_BYTES,
    HELLO_SECONDS,
    Hello,
    Refused,
)
from elasticd.shell.network.sealed import Sealed
from elasticd.shell.network.table import PeerTable
from elasticd.shell.network.transfer import READ_BYTES
from elasticd.shell.network.twins import RefusedTwin
from elasticd.shell.network.wires import PeerRun
from elasticd.shell.tasks import Tasks
from elasticd.trust.names import Issued

MAX_CONNECTIONS = 2048
"""Half of the descriptors that a daemon may have open."""
MAX_INCOMING = ADDRESSES_OF_ONE
"""Connections from one peer, which opens one to each of our addresses."""
MAX_STRANGERS = 128
"""Incoming connections that have not shown yet that they are a member's; a new one beyond it costs
the oldest its place, since a member shows it at once."""
LISTEN_AGAIN_SECONDS = 5.0
"""So often is looked for addresses of ours that the machine hasn't had yet."""
GUEST_SECONDS = 10.0
"""Who wants to become a member waits for the issuer's disk."""

_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

Admit = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

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
    admit: Admit | None = None
    """Talks with those who want to become members; None: nobody may, here."""
    renew: Admit | None = None
    """Talks with members that renew their certificates; None: nobody may, here."""
    bind: Callable[[str], Awaitable[list[socket.socket]]] = bound
    _kept: Tasks = field(default_factory=lambda: Tasks("listening"))
    _listening: list[socket.socket] = field(default_factory=list)
    _strangers: Unproven = field(default_factory=Unproven)
    _fetching: dict[asyncio.Task[None], Issued] = field(default_factory=dict)

    async def listen(self, address: str) -> None:
        """Accept connections there and wherever else we say that we are. Of these some may be
        missing, as macOS takes the addresses of an interface away when its link is lost: those are
        listened on once they are there.

        Raises:
            OperationError: the address is in use or not this machine's, and none of the others is.
        """
        failures: dict[str, OSError] = {}
        for each in dict.fromkeys((address, *self.gate.me.addresses)):
            try:
                await self._serve_at(each)
            except OSError as error:
                failures[each] = error
        first = failures.get(address)
        if first is not None and not (_is_absent(first) and self._listening):
            await self.stop()
            raise OperationError(f"can't listen on {address}: {first.strerror}")
        for each, failure in failures.items():  # one that the first covers may be among them
            log.info("not listened on", address=each, reason=failure.strerror)
        if missing := [each for each, failure in failures.items() if _may_pass(failure)]:
            later = partial(self._serve_later, missing)
            self._kept.keep("listening at addresses that come later", later)

    async def _serve_later(self, missing: list[str]) -> None:
        """Listen on each of these as soon as the machine has it, and room for it."""
        while missing:
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)
            for address in tuple(missing):
                try:
                    await self._serve_at(address)
                except OSError as error:
                    if _may_pass(error):
                        continue
                    log.warning("not listened on", address=address, reason=error.strerror)
                else:
                    log.info("listened on from now on", address=address)
                missing.remove(address)

    async def _serve_at(self, address: str) -> None:
        """Raises OSError: nowhere at what the name stands for."""
        for listening in await self.bind(address):
            try:
                listening.listen()
            except OSError:  # another has begun to listen there meanwhile
                listening.close()
                raise
            listening.setblocking(False)
            self._listening.append(listening)
            self._kept.keep("accepting connections", partial(self._accept_at, listening))

    async def stop(self) -> None:
        """Accept nothing more."""
        await self._kept.cancel()
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    def cut_off(self) -> None:
        """Give nothing more to members that were put out by now."""
        for task, member in self._fetching.items():
            if self.gate.credentials.revoked.holds(member):
                task.cancel()

    async def _accept_at(self, listening: socket.socket) -> None:
        while True:
            accepted = await next_connection(listening, self._no_room)
            if len(self.tasks) >= MAX_CONNECTIONS:
                self.gate.complain("an incoming connection", f"{MAX_CONNECTIONS} are open already")
                accepted.close()
                continue
            task = self.tasks.start(self._serve(accepted))
            task.add_done_callback(partial(self._served, accepted))
            self._strangers.add(task, MAX_STRANGERS)
            # There may be no end of them, and each needs a turn, if only to go.
            await asyncio.sleep(0)

    def _no_room(self, error: OSError) -> None:
        self.gate.complain("an incoming connection", str(error))

    def _served(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """One that is cancelled before it begins closes nothing itself."""
        self._strangers.discard(task)
        self._fetching.pop(task, None)
        accepted.close()

    def _is_member(self, fetches: Issued | None = None) -> None:
        """Who is served by this task has shown that."""
        if (task := asyncio.current_task()) is not None:
            self._strangers.discard(task)
            if fetches is not None:
                self._fetching[task] = fetches

    async def _serve(self, accepted: socket.socket) -> None:
        source = "an incoming connection"
        try:
            transfer.tune(accepted)
            async with asyncio.timeout(HELLO_SECONDS):
                first = await asyncio.get_running_loop().sock_recv(accepted, 1)
            await self._serve_errand(first, accepted)
        except ssl.SSLError as error:
            self.gate.refuse(source, Refused(reason_of(error)))
        except ProtocolError as error:
            self.gate.refuse(source, error)
        except TimeoutError as error:
            self.gate.complain(source, error.strerror or "no hello came")
        except OSError as error:
            log.debug("connection failed", source=source, reason=str(error))

    async def _serve_errand(self, first: bytes, accepted: socket.socket) -> None:
        if first not in set(Errand):
            raise ProtocolError("it is no daemon")
        match Errand(first):
            case Errand.PEER:
                await self._serve_peer(accepted)
            case Errand.FETCH:
                await self._serve_fetch(accepted)
            case Errand.JOIN:
                if self.admit is None:
                    raise ProtocolError("it wants to join, and nobody may here")
                guests = self.gate.credentials.guests
                await self._serve_asking(accepted, guests, self.admit)
            case Errand.RENEW:
                if self.renew is None:
                    raise ProtocolError("it wants a new certificate, and nobody makes one here")
                await self._serve_asking(accepted, self.gate.credentials.incoming, self.renew)
            case errand:
                assert_never(errand)

    async def _serve_peer(self, accepted: socket.socket) -> None:
        """Have a connection of another daemon, until it ends."""
        reader, writer = await transfer.accept(accepted, self.gate.credentials.incoming)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await transfer.read_frame(reader, HELLO_BYTES)
                # Not sooner: it may have been put out while it was silent, and hears nothing then.
                try:
                    member = self.gate.credentials.other_end(writer.get_extra_info("ssl_object"))
                except Superseded:
                    writer.write(encode(self.gate.must_renew()))
                    raise
                try:
                    hello = self.gate.check(first, member)
                    self.gate.admit(hello, self.table.boot_of(hello.node))
                except RefusedTwin as error:
                    writer.write(encode(error.frame))
                    raise
                except ProtocolError:
                    # It is told who we are even so: it then knows why.
                    writer.write(encode(self.gate.me.frame()))
                    raise
            writer.write(encode(self.gate.me.frame()))
            self._is_member()
            if hello.node == self.gate.me.node:
                self.gate.complain_of_namesake(hello, hello.address)
            else:
                await self._hold(hello, reader, writer)
        finally:
            await transfer.close(writer)

    async def _serve_fetch(self, accepted: socket.socket) -> None:
        """Give a member what it wants."""
        sink = Sealed.server(accepted, self.gate.credentials.incoming)
        try:
            async with asyncio.timeout(transfer.HANDSHAKE_SECONDS):
                await sink.shake_hands()
            async with asyncio.timeout(HELLO_SECONDS):
                member = self.gate.credentials.other_end(sink.connection)
                self._is_member(member)
                first = await sink.read_frame(HELLO_BYTES)
            await self.bulk.answer(first, sink)
        finally:
            sink.close()

    async def _serve_asking(
        self, accepted: socket.socket, context: ssl.SSLContext, answer: Admit
    ) -> None:
        """Talk with somebody who wants a certificate: a stranger until the end."""
        reader, writer = await transfer.accept(accepted, context)
        try:
            async with asyncio.timeout(GUEST_SECONDS):
                await answer(reader, writer)
        finally:
            await transfer.close(writer)

    async def _hold(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Have a connection of a daemon that has proved to be live, until it ends."""
        self.learn(hello)
        peer = self.table.meet(hello)
        peer.incoming.append(writer)
        if len(peer.incoming) > MAX_INCOMING:
            transfer.abort(peer.incoming.pop(0))
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


def _is_absent(error: OSError) -> bool:
    """Whether the machine may have the address later: its interface, or who knows the name, is not
    there yet."""
    return error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)


def _may_pass(error: OSError) -> bool:
    """Whether an address may be listened on later."""
    return _is_absent(error) or error.errno in _NO_ROOM


def _answer(frame: dict[str, Any]) -> Pong:
    word = CONNECTION.decode(frame)
    if not isinstance(word, Ping):
        raise ProtocolError(f"{word.kind} on a connection that is open already")
    return Pong(word.n)
