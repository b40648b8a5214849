"""A TLS connection that a thread can take over: the event loop's own can't leave the loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from elasticd.errors import ProtocolError
from elasticd.ipc.frames import Decoder

T = TypeVar("T")
_FRAME_HEAD_BYTES = 4


class Sealed:
    """One end of a connection. Used on the loop; a thread may use ``connection`` meanwhile alone.

    Attributes:
        connection: does not block.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.connection = connection

    @classmethod
    def client(cls, opened: socket.socket, context: ssl.SSLContext) -> Sealed:
        """Our end of a connection that we opened; ``opened`` is its own from now on."""
        return cls(_wrapped(opened, context, server_side=False))

    @classmethod
    def server(cls, accepted: socket.socket, context: ssl.SSLContext) -> Sealed:
        """Our end of one that was opened to us."""
        return cls(_wrapped(accepted, context, server_side=True))

    async def shake_hands(self) -> None:
        """Raises OSError (ssl.SSLError is one): the other end is no daemon, or goes away."""
        await self._retried(self.connection.do_handshake)

    async def read_frame(self, limit_bytes: int) -> dict[str, Any]:
        """The next frame; what follows it is not read.

        Raises:
            ProtocolError: it is none, is longer than ``limit_bytes``, or the connection ends.
            OSError: the connection fails.
        """
        head = await self._exactly(_FRAME_HEAD_BYTES)
        length = int.from_bytes(head, "big")
        if length > limit_bytes:
            raise ProtocolError(f"a frame of {length} bytes is longer than {limit_bytes} here")
        (frame,) = Decoder().feed(head + await self._exactly(length))
        return frame

    async def send(self, data: bytes) -> None:
        """Raises OSError: the other end went away."""
        rest = memoryview(data)
        while rest:
            sent = await self._retried(lambda: self.connection.send(rest))  # noqa: B023
            rest = rest[sent:]

    async def ended(self) -> None:
        """Returns once the other end has hung up, or has sent something unasked."""
        await self._readable()

    def close(self) -> None:
        self.connection.close()

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = await self._retried(lambda: self.connection.recv(count - len(data)))  # noqa: B023
            if not piece:
                raise ProtocolError("it closed the connection")
            data += piece
        return data

    async def _retried(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                await self._readable()
            except ssl.SSLWantWriteError:
                await self._writable()

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        await self._until(loop.add_reader, loop.remove_reader)

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        await self._until(loop.add_writer, loop.remove_writer)

    async def _until(
        self, watch: Callable[[int, Callable[[], None]], None], leave: Callable[[int], bool]
    ) -> None:
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        descriptor = self.connection.fileno()

        def tell() -> None:
            if not ready.done():
                ready.set_result(None)

        watch(descriptor, tell)
        try:
            await ready
        finally:
            leave(descriptor)


def _wrapped(
    connection: socket.socket, context: ssl.SSLContext, *, server_side: bool
) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(
            connection, server_side=server_side, do_handshake_on_connect=False
        )
    except OSError:
        connection.close()
        raise
