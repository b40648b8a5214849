"""Bulk data between daemons: job archives, states, shards (docs/protocols.md §4).

Each transfer is a short connection of its own to the port on which a daemon meets its peers: a
request frame, an answer frame with the size, and the bytes as they are. Nothing of a control
message ever waits behind a state.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, assert_never, cast

from elasticd.checkpoints.sequential import write_all
from elasticd.core.words.connections import (
    CONNECTION,
    FETCH,
    OF_FETCH,
    EchoedChallenge,
    FetchChallenge,
    FetchRefused,
    FetchSize,
    FetchWaits,
    OfFetch,
    OpenFetch,
)
from elasticd.errors import ElasticdError, OperationError, ProtocolError
from elasticd.ipc.frames import Decoder, encode
from elasticd.shell.network import lookups, stream

CONNECT_SECONDS = 3.0
IDLE_SECONDS = 30.0
"""Both ends give up when nothing has moved for so long."""
WAITS_SECONDS = 5.0
"""How often who asked hears that the answer is still being got ready: a trainer's state is there
only when the body of its step is done, and a script may do much there."""
SILENT_SECONDS = 5
"""After so long without an acknowledgement the kernel gives a connection up: a cut cable, a dead
host."""
ANSWER_BYTES = 64 * 1024
"""Longest frame before the bytes."""
READ_BYTES = 256 * 1024
"""Of frames, at once."""
_FRAME_HEAD_BYTES = 4
_CHALLENGE_CHARS = 16
WRONG_SHAPE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What code raises that takes a frame's fields for what they aren't."""

Serve = Callable[[dict[str, Any]], Awaitable[int]]
"""Gets a fetch request; returns a descriptor of what it asks for, which the caller closes. Raises
an ElasticdError for the other side to read."""


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to ``host:port`` that notices dead hosts and sends small frames at once.

    Raises:
        OSError: nobody listens there, or it can't be reached (TimeoutError after
            :data:`CONNECT_SECONDS`).
        ValueError: not an address.
    """
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(sock=await lookups.connection(address))
    tune(writer.transport)
    return reader, writer


def tune(transport: asyncio.BaseTransport) -> None:
    """Set what every connection between daemons needs, on either end."""
    connection: socket.socket = transport.get_extra_info("socket")
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_SECONDS - 2),
    ]
    if sys.platform == "darwin":
        idle, dropped = 0x10, 0x80  # TCP_KEEPALIVE, TCP_RXT_CONNDROPTIME: netinet/tcp.h
        options += [(socket.IPPROTO_TCP, idle, 2), (socket.IPPROTO_TCP, dropped, SILENT_SECONDS)]
    else:
        options += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_SECONDS * 1000),
        ]
    for level, option, value in options:
        # A connection that has ended already refuses options; reading from it will tell.
        with contextlib.suppress(OSError):
            connection.setsockopt(level, option, value)


async def close(writer: asyncio.StreamWriter) -> None:
    """Close, and give what was written a second to leave."""
    writer.close()
    try:
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
    except OSError:
        writer.transport.abort()


async def read_frame(reader: asyncio.StreamReader, limit_bytes: int) -> dict[str, Any]:
    """Exactly one frame; what follows it stays in ``reader``.

    Raises:
        ProtocolError: it is none, is longer than ``limit_bytes``, or the connection ends.
    """
    try:
        head = await reader.readexactly(_FRAME_HEAD_BYTES)
        length = int.from_bytes(head, "big")
        if length > limit_bytes:
            raise ProtocolError(f"a frame of {length} bytes is longer than {limit_bytes} here")
        (frame,) = Decoder().feed(head + await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        raise ProtocolError("it closed the connection") from None
    return frame


def proof(challenge: str) -> bytes:
    """The frame by which one end shows that it hears the other."""
    return encode(CONNECTION.encode(EchoedChallenge(challenge[:_CHALLENGE_CHARS])))


async def challenge(
    greeting: Callable[[str], Mapping[str, Any]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> bool:
    """Send the ``greeting`` that has a challenge; whether the other end repeats that.

    Only somebody who reads our answer can, so a recording of another connection can't.

    Raises:
        ProtocolError: it sent no frame, or closed the connection.
    """
    token = secrets.token_hex(_CHALLENGE_CHARS // 2)
    writer.write(encode(greeting(token)))
    frame = await read_frame(reader, ANSWER_BYTES)
    return CONNECTION.knows(frame) and CONNECTION.decode(frame) == EchoedChallenge(token)


async def fetch(
    address: str, request: Mapping[str, Any], sink: int, limit_bytes: int | None = None
) -> int:
    """Write what the daemon at ``address`` has for ``request`` to the descriptor ``sink``.

    Returns the number of bytes, all of which came.

    Raises:
        OperationError: it refuses, goes away, sends nothing for :data:`IDLE_SECONDS`, or has more
            than ``limit_bytes``. ``sink`` may then hold a part.
    """
    async with _asked(address, request, limit_bytes) as (size, first, connection):
        write_all(sink, first)
        if left := size - len(first):
            await stream.aside(
                lambda own: stream.receive(own, sink, left, IDLE_SECONDS), connection
            )
        return size


@contextlib.asynccontextmanager
async def _asked(
    address: str,
    request: Mapping[str, Any],
    limit_bytes: int | None,
    waits: Callable[[FetchWaits], None] = lambda word: None,
) -> AsyncIterator[tuple[int, bytes, socket.socket]]:
    """The size of what a daemon has, the first bytes of it, and the connection with the rest.
    ``waits`` hears that it is not ready yet; a ProtocolError of it ends the fetch.

    Raises:
        OperationError: as :func:`fetch`; also for what fails while the rest is read.
    """
    loop = asyncio.get_running_loop()
    head = _AnswerHead(limit_bytes, loop, waits)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            opened = await lookups.connection(address)
            transport, _ = await loop.create_connection(lambda: head, sock=opened)
        try:
            tune(transport)
            transport.write(encode({**FETCH.encode(OpenFetch()), **request}))
            size, first = await head.received()
            yield size, first, transport.get_extra_info("socket")
        finally:
            transport.abort()
    except (OSError, ValueError, ProtocolError) as error:
        what = request.get("what", "?")
        raise OperationError(f"{what} from {address}: {error or 'no answer in time'}") from error


class _AnswerHead(asyncio.BufferedProtocol):
    """Receives an answer's frame and what comes with it of the bytes; the rest stays unread."""

    def __init__(
        self,
        limit_bytes: int | None,
        loop: asyncio.AbstractEventLoop,
        waits: Callable[[FetchWaits], None],
    ) -> None:
        self._limit = limit_bytes
        self._waits = waits
        self._loop = loop
        self._buffer = memoryview(bytearray(ANSWER_BYTES))
        self._head = bytearray()
        self._moved_at = loop.time()
        self._done: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    async def received(self) -> tuple[int, bytes]:
        """The size and the first bytes. Raises ProtocolError, OSError or TimeoutError."""
        while not self._done.done():
            quiet = self._loop.time() - self._moved_at
            if quiet >= IDLE_SECONDS:
                raise TimeoutError(f"nothing came for {IDLE_SECONDS:g} s")
            await asyncio.wait([self._done], timeout=IDLE_SECONDS - quiet)
        return self._done.result()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._moved_at = self._loop.time()
        if self._done.done():
            return
        self._head += self._buffer[:nbytes]
        try:
            while not self._done.done() and self._take():
                pass
        except ProtocolError as error:
            self._done.set_exception(error)

    def _take(self) -> bool:
        """Take in the next frame, if all of it is here."""
        if len(self._head) < _FRAME_HEAD_BYTES:
            return False
        end = _FRAME_HEAD_BYTES + int.from_bytes(self._head[:_FRAME_HEAD_BYTES], "big")
        if end > ANSWER_BYTES:
            raise ProtocolError("it sent no answer but something else")
        if len(self._head) < end:
            return False
        (answer,) = Decoder().feed(bytes(self._head[:end]))
        del self._head[:end]
        assert self._transport is not None
        match _answer(answer):
            case FetchRefused(error):
                raise ProtocolError(error)
            case FetchChallenge(challenge):
                self._transport.write(proof(challenge))
            case FetchWaits() as word:
                self._waits(word)
            case FetchSize(size):
                self._begin(size, bytes(self._head), self._transport)
            case word:
                assert_never(word)
        return True

    def _begin(self, size: int, first: bytes, transport: asyncio.Transport) -> None:
        if size < 0:
            raise ProtocolError("its answer has no size")
        if self._limit is not None and size > self._limit:
            raise ProtocolError(f"it has {size} bytes, more than {self._limit}")
        if len(first) > size:
            raise ProtocolError(f"it sent more than the {size} bytes that it had")
        transport.pause_reading()
        self._done.set_result((size, first))

    def connection_lost(self, error: Exception | None) -> None:
        if self._done.done():
            return
        self._done.set_exception(error or ProtocolError("it hung up"))
        # Whoever waited may have been cancelled.
        self._done.exception()


def _answer(frame: dict[str, Any]) -> OfFetch:
    try:
        return OF_FETCH.decode(frame)
    except ProtocolError as error:
        raise ProtocolError(f"its answer has no size: {error}") from None


async def answer(request: dict[str, Any], writer: asyncio.StreamWriter, serve: Serve) -> None:
    """Serve one fetch on the connection that it came on; the caller closes that.

    Raises:
        OSError: the other side went away, stopped reading, or the file can't be read.
    """
    try:
        fd = await _ready(asyncio.ensure_future(serve(request)), writer)
    except _GoneError:
        return
    except (ElasticdError, OSError, *WRONG_SHAPE) as error:
        await refuse(writer, error)
        return
    try:
        size = os.fstat(fd).st_size
        await _begin(writer, size)
        connection = writer.get_extra_info("socket")
        await stream.aside(lambda own: stream.send(own, fd, size, IDLE_SECONDS), connection)
    finally:
        os.close(fd)


class _GoneError(Exception):
    """Who asked has gone."""


async def _ready(served: asyncio.Future[int], writer: asyncio.StreamWriter) -> int:
    """The descriptor; who asked hears meanwhile that it is not there yet."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        while not (await asyncio.wait([served], timeout=WAITS_SECONDS))[0]:
            if writer.is_closing():
                raise _GoneError
            writer.write(encode(OF_FETCH.encode(FetchWaits(loop.time() - started))))
    except BaseException:
        served.cancel()
        served.add_done_callback(_close_result)
        raise
    return served.result()


def _close_result(served: asyncio.Future[int]) -> None:
    if not served.cancelled() and served.exception() is None:
        os.close(served.result())


async def relay(address: str, request: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
    """Answer a fetch with what the daemon at ``address`` has for ``request``, as it comes.

    Raises:
        OSError: one side or the other went away in the middle.
    """
    begun = False

    def pass_on(word: FetchWaits) -> None:
        if writer.is_closing():
            raise ProtocolError("who asked has gone")
        writer.write(encode(OF_FETCH.encode(word)))

    try:
        async with _asked(address, request, None, pass_on) as (size, first, source):
            begun = True
            await _begin(writer, size, first)
            left, sink = size - len(first), writer.get_extra_info("socket")
            await stream.aside(
                lambda one, other: stream.pass_on(one, other, left, IDLE_SECONDS), source, sink
            )
    except OperationError as error:
        if begun:
            raise OSError(str(error)) from error
        await refuse(writer, error)


async def refuse(writer: asyncio.StreamWriter, error: Exception) -> None:
    """Answer a fetch with why there is nothing."""
    writer.write(encode(OF_FETCH.encode(FetchRefused(str(error)[: ANSWER_BYTES // 8]))))
    await writer.drain()


async def _begin(writer: asyncio.StreamWriter, size: int, first: bytes = b"") -> None:
    """Send the answer's frame to its last byte: what follows goes past the transport."""
    writer.transport.set_write_buffer_limits(0)
    writer.write(encode(OF_FETCH.encode(FetchSize(size))) + first)
    async with asyncio.timeout(IDLE_SECONDS):
        await writer.drain()
