"""Connections between daemons (docs/protocols.md §4).

A daemon sends on the connection that it opened itself, so each pair has two. A peer is connected while both are up and both
said hello from the same run of the peer's daemon; the kernel closes them when that daemon dies, which is the fastest news
of it that there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
import tenacity

from elasticd.config import split_address
from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.ipc.frames import MAX_FRAME_BYTES, Decoder, encode
from elasticd.types import NodeId

VERSION = 1
MAX_QUEUED_BYTES = 4 * MAX_FRAME_BYTES
"""What may wait for a peer that does not read; beyond it the connection is closed."""
MAX_PEERS = 1024
HELLO_SECONDS = 5.0
CONNECT_SECONDS = 3.0
IDLE_FETCH_SECONDS = 30.0
_READ_BYTES = 256 * 1024
_SLICE_BYTES = 1 << 20

log = structlog.get_logger(__name__)

Serve = Callable[[dict[str, Any]], Awaitable[int]]
"""Returns a descriptor with what a fetch asks for; the connection closes it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a daemon says of itself in its hello."""

    cluster_id: str
    cluster: str
    node: NodeId
    boot: str
    address: str

    def frame(self) -> dict[str, Any]:
        return {
            "t": "hello",
            "version": VERSION,
            "cluster": f"{self.cluster}/{self.cluster_id}",
            "node": self.node,
            "boot": self.boot,
            "address": self.address,
        }


@dataclass(slots=True)
class Peer:
    """Another daemon, as known by name."""

    node: NodeId
    boot: str
    address: str
    outgoing: asyncio.StreamWriter | None = None
    incoming: asyncio.StreamWriter | None = None
    announced: bool = False


@dataclass(slots=True)
class Counters:
    """What was refused, for ``doctor`` and the log."""

    bad_frames: int = 0
    refused_hellos: int = 0
    last_reason: str = ""


@dataclass(slots=True)
class Callbacks:
    connected: Callable[[NodeId, str, str], None]
    disconnected: Callable[[NodeId, str, str], None]
    message: Callable[[NodeId, dict[str, Any]], None]
    serve: Serve


@dataclass(slots=True)
class Peers:
    """All connections with other daemons. Runs in the event loop's thread."""

    me: Identity
    listen: str
    addresses: Sequence[str]
    call: Callbacks
    insecure: bool = False
    counters: Counters = field(default_factory=Counters)
    _peers: dict[NodeId, Peer] = field(default_factory=dict)
    _dialled: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _accepted: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen and begin to dial.

        Raises:
            UsageError: the address isn't loopback and ``insecure`` isn't set.
            OperationError: the address is in use.
        """
        host, port = split_address(self.listen)
        if not self.insecure and not _is_loopback(host):
            raise UsageError(
                f"listen = {self.listen!r}: connections are not encrypted or authenticated yet, so only"
                " loopback addresses are served; --insecure opens others"
            )
        try:
            self._server = await asyncio.start_server(self._accept, host, port)
        except OSError as error:
            raise OperationError(f"can't listen on {self.listen}: {error.strerror}") from None
        for address in self.addresses:
            self._dial(address)

    def send(self, node: NodeId, message: dict[str, Any]) -> None:
        """Queue a frame; nothing if the peer is not connected."""
        peer = self._peers.get(node)
        if peer is None or peer.outgoing is None or not peer.announced:
            return
        writer = peer.outgoing
        if writer.transport.get_write_buffer_size() > MAX_QUEUED_BYTES:
            log.warning("peer does not read", node=node)
            writer.transport.abort()
            return
        writer.write(encode(message))

    def connected(self) -> list[NodeId]:
        return sorted(node for node, peer in self._peers.items() if peer.announced)

    def address_of(self, node: NodeId) -> str | None:
        peer = self._peers.get(node)
        return peer.address if peer is not None and peer.announced else None

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [*self._dialled.values(), *self._accepted]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- connections that we open ------------------------------------------------------------------

    def _dial(self, address: str) -> None:
        if (
            address == self.me.address
            or address in self._dialled
            or len(self._dialled) >= MAX_PEERS
        ):
            return
        self._dialled[address] = asyncio.create_task(self._keep_dialled(address))

    async def _keep_dialled(self, address: str) -> None:
        """Connect, and again whenever the connection ends, until cancelled."""
        while True:
            async for attempt in tenacity.AsyncRetrying(
                wait=tenacity.wait_exponential_jitter(initial=0.05, max=1.0, jitter=0.05),
                retry=tenacity.retry_if_exception_type((OSError, ProtocolError, TimeoutError)),
            ):
                with attempt:
                    reader, writer, hello, decoder = await self._greet(address)
            await self._hold_outgoing(address, reader, writer, hello, decoder)
            await asyncio.sleep(0.05)

    async def _greet(
        self, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, Any], Decoder]:
        reader, writer = await _connect(address)
        try:
            writer.write(encode(self.me.frame()))
            decoder = Decoder()
            async with asyncio.timeout(HELLO_SECONDS):
                hello = self._checked(await _first_frame(reader, decoder))
        except BaseException:
            writer.close()
            raise
        return reader, writer, hello, decoder

    async def _hold_outgoing(
        self,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: dict[str, Any],
        decoder: Decoder,
    ) -> None:
        try:
            if hello["node"] == self.me.node:
                await asyncio.sleep(60)  # our own address under another name
                return
            peer = self._meet(hello, address)
            peer.outgoing = writer
            self._maybe_connected(peer)
            with contextlib.suppress(OSError):
                while await reader.read(_READ_BYTES):
                    self.counters.bad_frames += 1  # nothing is sent this way
            self._gone(peer, writer, "its connection closed")
        finally:
            writer.close()

    # --- connections that others open --------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._accepted.add(task)
        task.add_done_callback(self._accepted.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = Decoder()
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await _first_frame(reader, decoder)
            if first.get("t") == "fetch":
                await self._answer_fetch(first, writer)
                return
            hello = self._checked(first)
            writer.write(encode(self.me.frame()))
            if hello["node"] == self.me.node:
                return
            await self._hold_incoming(hello, reader, writer, decoder)
        except (ProtocolError, TimeoutError) as error:
            self._count_bad(str(error) or "no hello came")
        except OSError:
            pass
        finally:
            writer.close()

    async def _hold_incoming(
        self,
        hello: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: Decoder,
    ) -> None:
        peer = self._meet(hello, hello["address"])
        peer.incoming = writer
        self._dial(hello["address"])
        self._maybe_connected(peer)
        reason = "its connection closed"
        try:
            for frame in decoder.feed(b""):
                self.call.message(peer.node, frame)
            while data := await reader.read(_READ_BYTES):
                for frame in decoder.feed(data):
                    self.call.message(peer.node, frame)
        except ProtocolError as error:
            reason = f"it sent what no daemon sends: {error}"
            self._count_bad(reason)
        except OSError as error:
            reason = f"its connection failed: {error.strerror or error}"
        finally:
            self._gone(peer, writer, reason)

    # --- peers ---------------------------------------------------------------------------------------

    def _checked(self, hello: dict[str, Any]) -> dict[str, Any]:
        mine = self.me.frame()
        strings = all(
            isinstance(hello.get(key), str) for key in ("node", "boot", "address", "cluster")
        )
        if hello.get("t") != "hello" or not strings:
            raise ProtocolError("its first frame is no hello")
        for key in ("version", "cluster"):
            if hello.get(key) != mine[key]:
                self.counters.refused_hellos += 1
                raise ProtocolError(f"it is of another {key}: {str(hello.get(key))[:80]!r}")
        return hello

    def _meet(self, hello: dict[str, Any], address: str) -> Peer:
        node, boot = NodeId(hello["node"]), hello["boot"]
        peer = self._peers.get(node)
        if peer is not None and peer.boot != boot:
            self._drop(peer, "its daemon was started again")
            peer = None
        if peer is None:
            peer = self._peers[node] = Peer(node, boot, address)
        return peer

    def _maybe_connected(self, peer: Peer) -> None:
        if peer.announced or peer.outgoing is None or peer.incoming is None:
            return
        peer.announced = True
        log.info("peer connected", node=peer.node, address=peer.address)
        self.call.connected(peer.node, peer.boot, peer.address)

    def _gone(self, peer: Peer, writer: asyncio.StreamWriter, reason: str) -> None:
        if writer in (peer.incoming, peer.outgoing) and self._peers.get(peer.node) is peer:
            self._drop(peer, reason)

    def _drop(self, peer: Peer, reason: str) -> None:
        self._peers.pop(peer.node, None)
        for writer in (peer.incoming, peer.outgoing):
            if writer is not None:
                writer.close()
        if peer.announced:
            peer.announced = False
            log.info("peer disconnected", node=peer.node, reason=reason)
            self.call.disconnected(peer.node, peer.boot, reason)

    def _count_bad(self, reason: str) -> None:
        self.counters.bad_frames += 1
        if reason != self.counters.last_reason:
            log.warning("connection refused", reason=reason)
        self.counters.last_reason = reason

    # --- bulk ------------------------------------------------------------------------------------------

    async def _answer_fetch(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if request.get("cluster") != self.me.frame()["cluster"]:
            raise ProtocolError("a fetch from another cluster")
        try:
            fd = await self.call.serve(request)
        except (OperationError, ProtocolError) as error:
            writer.write(encode({"error": str(error)}))
            await writer.drain()
            return
        try:
            size = os.fstat(fd).st_size
            writer.write(encode({"bytes": size}))
            offset = 0
            while offset < size:
                data = os.pread(fd, _SLICE_BYTES, offset)
                if not data:
                    raise OSError("it shrank while it was sent")
                writer.write(data)
                await writer.drain()
                offset += len(data)
        finally:
            os.close(fd)

    async def fetch(self, address: str, request: dict[str, Any], fd: int) -> int:
        """Fetch what ``request`` names from the daemon at ``address`` into ``fd``; returns the bytes.

        Raises:
            OperationError: it refuses, goes away, or sends nothing for IDLE_FETCH_SECONDS.
        """
        frame = {**request, "t": "fetch", "cluster": self.me.frame()["cluster"]}
        try:
            reader, writer = await _connect(address)
            try:
                writer.write(encode(frame))
                return await _receive_bulk(reader, fd)
            finally:
                writer.close()
        except (OSError, TimeoutError, ProtocolError) as error:
            raise OperationError(
                f"{request.get('what')} from {address}: {error or 'no answer'}"
            ) from None


async def _receive_bulk(reader: asyncio.StreamReader, fd: int) -> int:
    async with asyncio.timeout(IDLE_FETCH_SECONDS):
        length = int.from_bytes(await _exactly(reader, 4), "big")
        if length > MAX_FRAME_BYTES:
            raise ProtocolError("its answer is no frame")
        (head,) = Decoder().feed(length.to_bytes(4, "big") + await _exactly(reader, length))
    if "error" in head:
        raise OperationError(str(head["error"]))
    size = head.get("bytes")
    if type(size) is not int or size < 0:
        raise ProtocolError("its answer has no size")
    left = size
    while left:
        async with asyncio.timeout(IDLE_FETCH_SECONDS):
            data = await reader.read(min(left, _SLICE_BYTES))
        if not data:
            raise OperationError(f"it ended {left} bytes early")
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        left -= len(data)
    return size


async def _exactly(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError:
        raise ProtocolError("it closed the connection") from None


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = split_address(address)
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(host, port)
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return reader, writer


async def _first_frame(reader: asyncio.StreamReader, decoder: Decoder) -> dict[str, Any]:
    """The first frame only; bytes behind it stay in the stream."""
    length = int.from_bytes(await _exactly(reader, 4), "big")
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {length} bytes")
    (frame,) = decoder.feed(length.to_bytes(4, "big") + await _exactly(reader, length))
    return frame


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
