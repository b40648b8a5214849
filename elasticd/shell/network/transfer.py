"""Bulk data between daemons: job archives, states, shards (docs/protocols.md §4).

Each transfer is a short connection of its own to the port on which a daemon meets its peers: a
request frame, an answer frame with the size, and the bytes as they are. Nothing of a control
message ever waits behind a state.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, assert_never

from elasticd.core.words.connections import (
    FETCH,
    OF_FETCH,
    Errand,
    FetchRefused,
    FetchSize,
    FetchWaits,
    OfFetch,
    OpenFetch,
)
from elasticd.errors import ElasticdError, OperationError, ProtocolError
from elasticd.ipc.frames import Decoder, encode
from elasticd.shell.network import lookups, stream
from elasticd.shell.network.credentials import Credentials, reason_of
from elasticd.shell.network.sealed import Sealed
from elasticd.shell.tasks import cancel

CONNECT_SECONDS = 3.0
HANDSHAKE_SECONDS = 10.0
"""The kernel takes a connection at once; the daemon at the other end may be busy."""
CLOSE_SECONDS = 1.0
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
WRONG_SHAPE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""What code raises that takes a frame's fields for what they aren't."""

Serve = Callable[[dict[str, Any]], Awaitable[int]]
"""Gets a fetch request; returns a descriptor of what it asks for, which the caller closes. Raises
an ElasticdError for the other side to read."""


async def connect(
    address: str, credentials: Credentials, errand: Errand = Errand.PEER
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the daemon at ``host:port`` that notices dead hosts and sends small frames
    at once. The other end is a member; whether it takes us for one, its first frame shows.

    Raises:
        OSError: nobody listens there, or it can't be reached (TimeoutError after
            :data:`CONNECT_SECONDS`); ssl.SSLError: it is no member of this cluster.
        ValueError: not an address.
    """
    opened = await _called(address, errand)
    reader, writer = await asyncio.open_connection(
        sock=opened,
        ssl=credentials.outgoing,
        server_hostname="",
        ssl_handshake_timeout=HANDSHAKE_SECONDS,
        ssl_shutdown_timeout=CLOSE_SECONDS,
    )
    tune(writer.transport.get_extra_info("socket"))
    return reader, writer


async def accept(
    accepted: socket.socket, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Our end of a connection that was opened to us, after the handshake.

    Raises:
        OSError: it fails; ssl.SSLError: the other end is no member.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol,
        accepted,
        ssl=context,
        ssl_handshake_timeout=HANDSHAKE_SECONDS,
        ssl_shutdown_timeout=CLOSE_SECONDS,
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _called(address: str, errand: Errand) -> socket.socket:
    """A connection on which the first byte is sent."""
    async with asyncio.timeout(CONNECT_SECONDS):
        opened = await lookups.connection(address)
    try:
        await asyncio.get_running_loop().sock_sendall(opened, errand.value)
    except BaseException:
        opened.close()
        raise
    return opened


_TIMES = {
    # TCP_KEEPALIVE and TCP_RXT_CONNDROPTIME in seconds: netinet/tcp.h of Darwin.
    True: (0x10, 0x80, SILENT_SECONDS),
    # TCP_KEEPIDLE in seconds, TCP_USER_TIMEOUT in milliseconds: linux/tcp.h.
    False: (4, 18, SILENT_SECONDS * 1000),
}
"""By whether it is a Mac: what says after how long without a word a peer is asked whether it lives,
what says how long it may leave bytes unacknowledged, and how long."""


def tune(connection: socket.socket, here: str = sys.platform) -> None:
    """Set what every connection between daemons needs, on either end."""
    idle, dropped, limit = _TIMES[here == "darwin"]
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_SECONDS - 2),
        (socket.IPPROTO_TCP, idle, 2),
        (socket.IPPROTO_TCP, dropped, limit),
    ]
    for level, option, value in options:
        # A connection that has ended already refuses options; reading from it will tell.
        with contextlib.suppress(OSError):
            connection.setsockopt(level, option, value)


def abort(writer: asyncio.StreamWriter) -> None:
    """Close at once. One of TLS that is over already has nothing left to close, of which early
    releases of Python 3.11 make an AttributeError."""
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


async def close(writer: asyncio.StreamWriter) -> None:
    """Close, and give what was written a second to leave. The socket is closed on return, also when
    this is cancelled: TLS would wait for an answer, with the number of a descriptor that somebody
    else may have by then."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await writer.wait_closed()
    except OSError:
        abort(writer)
    except BaseException:
        abort(writer)
        raise


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


async def fetch(
    address: str,
    request: Mapping[str, Any],
    sink: int,
    credentials: Credentials,
    limit_bytes: int | None = None,
) -> int:
    """Write what the daemon at ``address`` has for ``request`` to the descriptor ``sink``.

    Returns the number of bytes, all of which came.

    Raises:
        OperationError: it refuses, goes away, sends nothing for :data:`IDLE_SECONDS`, or has more
            than ``limit_bytes``. ``sink`` may then hold a part.
    """
    async with _asked(address, request, credentials, limit_bytes) as (size, source):
        await stream.aside(
            lambda own: stream.receive(own, sink, size, IDLE_SECONDS), source.connection
        )
        return size


@contextlib.asynccontextmanager
async def _asked(
    address: str,
    request: Mapping[str, Any],
    credentials: Credentials,
    limit_bytes: int | None,
    waits: Callable[[FetchWaits], Awaitable[None]] | None = None,
) -> AsyncIterator[tuple[int, Sealed]]:
    """The size of what a daemon has, and the connection on which the bytes follow. ``waits`` hears
    that it is not ready yet; a ProtocolError of it ends the fetch.

    Raises:
        OperationError: as :func:`fetch`; also for what fails while the rest is read.
    """
    try:
        source = await asking(address, credentials)
        try:
            await source.send(encode({**FETCH.encode(OpenFetch()), **request}))
            yield await _size(source, limit_bytes, waits), source
        finally:
            source.close()
    except (OSError, ValueError, ProtocolError) as error:
        what, reason = request.get("what", "?"), str(error)
        if isinstance(error, ssl.SSLError):
            reason = reason_of(error)
        raise OperationError(f"{what} from {address}: {reason or 'no answer in time'}") from error


async def asking(address: str, credentials: Credentials) -> Sealed:
    """A connection on which the daemon at ``address`` expects what is wanted of it.

    Raises:
        Refused, OSError, ValueError: as :func:`connect`.
    """
    source = Sealed.client(await _called(address, Errand.FETCH), credentials.outgoing)
    try:
        tune(source.connection)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await source.shake_hands()
        credentials.other_end(source.connection)
    except BaseException:
        source.close()
        raise
    return source


async def _size(
    source: Sealed,
    limit_bytes: int | None,
    waits: Callable[[FetchWaits], Awaitable[None]] | None,
) -> int:
    """How many bytes follow, once it says so."""
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                frame = await source.read_frame(ANSWER_BYTES)
        except TimeoutError:
            raise TimeoutError(f"nothing came for {IDLE_SECONDS:g} s") from None
        match _answer(frame):
            case FetchRefused(error):
                raise ProtocolError(error)
            case FetchWaits() as word:
                if waits is not None:
                    await waits(word)
            case FetchSize(size):
                if size < 0:
                    raise ProtocolError("its answer has no size")
                if limit_bytes is not None and size > limit_bytes:
                    raise ProtocolError(f"it has {size} bytes, more than {limit_bytes}")
                return size
            case word:
                assert_never(word)


def _answer(frame: dict[str, Any]) -> OfFetch:
    try:
        return OF_FETCH.decode(frame)
    except ProtocolError as error:
        raise ProtocolError(f"its answer has no size: {error}") from None


async def answer(request: dict[str, Any], sink: Sealed, serve: Serve) -> None:
    """Serve one fetch on the connection that it came on; the caller closes that.

    Raises:
        OSError: the other side went away, stopped reading, or the file can't be read.
    """
    try:
        fd = await _ready(asyncio.ensure_future(serve(request)), sink)
    except _GoneError:
        return
    except (ElasticdError, OSError, *WRONG_SHAPE) as error:
        await refuse(sink, error)
        return
    try:
        size = os.fstat(fd).st_size
        await _begin(sink, size)
        await stream.aside(lambda own: stream.send(own, fd, size, IDLE_SECONDS), sink.connection)
    finally:
        os.close(fd)


class _GoneError(Exception):
    """Who asked has gone."""


async def _ready(served: asyncio.Future[int], sink: Sealed) -> int:
    """The descriptor; who asked hears meanwhile that it is not there yet."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    ended = asyncio.ensure_future(sink.ended())
    either: list[asyncio.Future[Any]] = [served, ended]
    try:
        while not served.done():
            await asyncio.wait(either, timeout=WAITS_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and not served.done():
                raise _GoneError
            if not served.done():
                await sink.send(encode(OF_FETCH.encode(FetchWaits(loop.time() - started))))
    except BaseException:
        served.cancel()
        served.add_done_callback(_close_result)
        raise
    finally:
        await cancel([ended])
    return served.result()


def _close_result(served: asyncio.Future[int]) -> None:
    if not served.cancelled() and served.exception() is None:
        os.close(served.result())


async def relay(
    address: str, request: Mapping[str, Any], sink: Sealed, credentials: Credentials
) -> None:
    """Answer a fetch with what the daemon at ``address`` has for ``request``, as it comes.

    Raises:
        OSError: one side or the other went away in the middle.
    """
    begun = False

    async def pass_on(word: FetchWaits) -> None:
        await sink.send(encode(OF_FETCH.encode(word)))

    try:
        async with _asked(address, request, credentials, None, pass_on) as (size, source):
            begun = True
            await _begin(sink, size)
            await stream.aside(
                lambda one, other: stream.pass_on(one, other, size, IDLE_SECONDS),
                source.connection,
                sink.connection,
            )
    except OperationError as error:
        if begun:
            raise OSError(str(error)) from error
        await refuse(sink, error)


async def refuse(sink: Sealed, error: Exception) -> None:
    """Answer a fetch with why there is nothing."""
    await sink.send(encode(OF_FETCH.encode(FetchRefused(str(error)[: ANSWER_BYTES // 8]))))


async def _begin(sink: Sealed, size: int) -> None:
    async with asyncio.timeout(IDLE_SECONDS):
        await sink.send(encode(OF_FETCH.encode(FetchSize(size))))
