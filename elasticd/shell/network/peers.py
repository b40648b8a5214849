"""Connections between daemons (docs/protocols.md §4).

A daemon sends on the connection that it opened itself, so each pair has two. A peer is connected
while both are up and both said hello from the same run of the peer's daemon; the kernel closes them
when that daemon dies, which is the fastest news of it that there is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
import tenacity

from elasticd.core.words.records import Path
from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.ipc.frames import MAX_FRAME_BYTES, Decoder, encode
from elasticd.settings.config import split_address
from elasticd.shell.complaints import Complaints
from elasticd.shell.network import transfer
from elasticd.shell.network.hello import ADDRESSES_OF_ONE, Hello, Identity, Refused
from elasticd.shell.network.transfer import Serve
from elasticd.shell.network.wires import (
    PING_SECONDS,
    SELDOM_PING_SECONDS,
    SETTLE_SECONDS,
    Peer,
    Wire,
)
from elasticd.types import NodeId

MAX_QUEUED_BYTES = 4 * MAX_FRAME_BYTES
"""What may wait for a peer that does not read; beyond it the connection is closed."""
MAX_ADDRESSES = 1024
MAX_CONNECTIONS = 4096
MAX_INCOMING = ADDRESSES_OF_ONE
"""Connections from one peer, which opens one to each of our addresses."""
MEASUREMENTS = 3
BLANK_BYTES = 4 << 20
"""What is transferred to measure an address of a peer that has several."""
MAX_STRANGERS = 128
"""Incoming connections that have not proved yet that they are live; a new one beyond it costs the
oldest its place, since a daemon proves it at once."""
CHANGING = ("remove", "chaos", transfer.RELAY)
"""Fetches that do something or pass such on, which a recording must not do again."""
HELLO_BYTES = 64 * 1024
HELLO_SECONDS = 5.0
LAST_WORDS_SECONDS = 0.05
REDIAL_SECONDS = 0.05
SLOWEST_REDIAL_SECONDS = 1.0
REFUSED_SECONDS = 5.0
"""Pause before an address is tried again that answered as another cluster or version."""
FORGET_SECONDS = 600.0
"""An address that was only learned from a hello is dropped after so long without an answer; its
daemon will say hello again."""
_READ_BYTES = 256 * 1024

log = structlog.get_logger(__name__)


class OwnAddress(Exception):
    """The daemon that answered is this one."""


@dataclass(slots=True, eq=False)
class Dial:
    """An address that is dialled for as long as the daemon runs; a learned one may be forgotten."""

    address: str
    learned: bool
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def pause(self, seconds: float) -> None:
        """Sleep, unless there was news of the peer since the last pause, or comes meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        self.wake.clear()


@dataclass(slots=True)
class Counters:
    """What was refused."""

    bad_frames: int = 0
    refused_hellos: int = 0


@dataclass(slots=True)
class Callbacks:
    """Whom to tell; all in the event loop's thread.

    ``connected(node, boot, address)`` and ``disconnected(node, boot, reason)`` alternate for a
    node. Between them ``moved(node, boot, address)`` says that it is reached at another address
    now, where what was sent to the last one may be lost, and ``paths(node, paths)`` how its
    addresses are. ``message(node, frame)`` comes only between them; if it can't make sense of a
    frame it raises ProtocolError, LookupError, TypeError or ValueError, and the
    peer is disconnected.
    """

    connected: Callable[[NodeId, str, str], None]
    disconnected: Callable[[NodeId, str, str], None]
    message: Callable[[NodeId, dict[str, Any]], None]
    serve: Serve
    moved: Callable[[NodeId, str, str], None] = lambda node, boot, address: None
    paths: Callable[[NodeId, tuple[Path, ...]], None] = lambda node, paths: None


@dataclass(slots=True)
class Peers:
    """All connections with other daemons. Runs in the event loop's thread."""

    me: Identity
    listen: str
    addresses: Sequence[str]
    call: Callbacks
    insecure: bool = False
    counters: Counters = field(default_factory=Counters)
    complain: Complaints = field(default_factory=lambda: Complaints("peers"))
    _peers: dict[NodeId, Peer] = field(default_factory=dict)
    _dials: dict[str, Dial] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _strangers: dict[asyncio.StreamWriter, None] = field(default_factory=dict)
    _shunned: dict[NodeId, str] = field(default_factory=dict)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _minder: asyncio.Task[None] | None = None
    _closing: bool = False

    async def start(self) -> None:
        """Listen and begin to dial.

        Raises:
            UsageError: an address isn't loopback and ``insecure`` isn't set.
            OperationError: the address is in use or not this machine's.
        """
        self._check("listen", self.listen)
        for address in self.addresses:
            self._check("peers", address)
        host, port = split_address(self.listen)
        try:
            self._servers.append(await asyncio.start_server(self._accept, host, port))
        except OSError as error:
            raise OperationError(f"can't listen on {self.listen}: {error.strerror}") from None
        for address in self.me.addresses:
            await self._listen_too(address)
        for address in self.addresses:
            self._dial(address, learned=False)
        self._minder = asyncio.create_task(self._mind_wires())

    async def _listen_too(self, address: str) -> None:
        """Where else we are to be found, if that is an address of this machine's that the first
        one does not cover."""
        host, port = split_address(address)
        if address == self.listen or not (self.insecure or is_loopback(host)):
            return
        try:
            self._servers.append(await asyncio.start_server(self._accept, host, port))
        except OSError as error:
            log.info("not listened on", address=address, reason=error.strerror)

    def _check(self, key: str, address: str) -> None:
        if not self.insecure and not is_loopback(split_address(address)[0]):
            raise UsageError(
                f"{key} = {address!r}: connections are not encrypted or authenticated yet, so only"
                " loopback addresses are used; --insecure opens others"
            )

    def send(self, node: NodeId, message: dict[str, Any]) -> None:
        """Queue a frame behind earlier ones; nothing if the peer is not connected.

        Raises:
            ProtocolError: the frame is too long.
        """
        peer = self._peers.get(node)
        if peer is None or peer.active is None or not peer.announced:
            return
        frame = encode(message)
        writer = peer.active.writer
        waiting = writer.transport.get_write_buffer_size()
        if waiting + len(frame) > MAX_QUEUED_BYTES:
            self._drop(peer, f"{waiting} bytes wait that it does not read")
            return
        writer.write(frame)

    def connected(self) -> list[NodeId]:
        """The nodes that messages reach now, in order."""
        return sorted(node for node, peer in self._peers.items() if peer.announced)

    def address_of(self, node: NodeId) -> str | None:
        """Where a connected node answers; None for others."""
        peer = self._peers.get(node)
        return peer.address if peer is not None and peer.announced else None

    def paths_of(self, node: NodeId) -> tuple[Path, ...]:
        """How a node is reached at each of its addresses; nothing if it is not connected."""
        peer = self._peers.get(node)
        return peer.paths() if peer is not None and peer.announced else ()

    def shun(self, node: NodeId) -> None:
        """Neither connect to a node nor let it connect, as if the link were cut.

        What is connected stays; see :meth:`hang_up`.
        """
        peer = self._peers.get(node)
        self._shunned[node] = peer.address if peer is not None else ""

    def unshun(self, node: NodeId) -> None:
        self._shunned.pop(node, None)

    def hang_up(self, node: NodeId) -> bool:
        """Close the connections with a node; whether there were any."""
        peer = self._peers.get(node)
        if peer is not None:
            self._drop(peer, "the link was cut on purpose")
        return peer is not None

    def ends_of(self, node: NodeId) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """Our and the other end of each connection with a node."""
        peer = self._peers.get(node)
        if peer is None:
            return []
        writers = peer.writers()
        found = [(w.get_extra_info("sockname"), w.get_extra_info("peername")) for w in writers]
        return [(tuple(ours), tuple(theirs)) for ours, theirs in found if ours and theirs]

    async def fetch(
        self, address: str, request: dict[str, Any], fd: int, limit_bytes: int | None = None
    ) -> int:
        """Fetch what ``request`` names from the daemon at ``address`` into ``fd``.

        Returns the number of bytes.

        Raises:
            OperationError: it refuses, goes away, or sends nothing for transfer.IDLE_SECONDS.
        """
        self._require_link(address)
        return await transfer.fetch(address, self._ours(request), fd, limit_bytes)

    def _require_link(self, address: str) -> None:
        if address in self._shunned.values():
            raise OperationError(f"{address} can't be reached: the link is cut on purpose")

    def _ours(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {**request, "cluster": self.me.cluster_name}

    async def close(self) -> None:
        """Close every connection, after what was sent has had a second to leave."""
        self._closing = True
        for server in self._servers:
            server.close()
        # Those that we send on go first: a peer reads our last words before it sees us gone.
        sending = [dial.task for dial in self._dials.values() if dial.task is not None]
        minder = [self._minder] if self._minder is not None else []
        for tasks in (minder, sending, tuple(self._tasks)):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()
        self._peers.clear()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": "a connection's task failed", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)

    # --- connections that we open -----------------------------------------------------------------

    def _dial(self, address: str, *, learned: bool) -> None:
        """Dial an address from now on; if that is being done already, do it now."""
        if address == self.me.address or address in self.me.addresses:
            return
        if (known := self._dials.get(address)) is not None:
            known.wake.set()
        elif len(self._dials) < MAX_ADDRESSES:
            dial = self._dials[address] = Dial(address, learned)
            dial.task = self._run(self._keep_dialled(dial))

    async def _keep_dialled(self, dial: Dial) -> None:
        """Connect, and again whenever the connection ends, until cancelled."""
        try:
            while True:
                writer: asyncio.StreamWriter | None = None
                try:
                    reader, writer, hello = await self._greet_in_the_end(dial)
                    await self._hold_outgoing(dial, reader, writer, hello)
                finally:
                    if writer is not None:
                        await transfer.close(writer)
                await dial.pause(REDIAL_SECONDS)
        except (OwnAddress, tenacity.RetryError) as error:
            log.info("address is not dialled any more", address=dial.address, reason=str(error))
            del self._dials[dial.address]

    async def _greet_in_the_end(
        self, dial: Dial
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Hello]:
        slower = tenacity.wait_exponential(
            multiplier=REDIAL_SECONDS, max=SLOWEST_REDIAL_SECONDS
        ) + tenacity.wait_random(0, REDIAL_SECONDS)

        def wait(state: tenacity.RetryCallState) -> float:
            outcome = state.outcome
            refused = outcome is not None and isinstance(outcome.exception(), Refused)
            return REFUSED_SECONDS if refused else slower(state)

        retrying = tenacity.AsyncRetrying(
            wait=wait,
            stop=tenacity.stop_after_delay(FORGET_SECONDS) if dial.learned else tenacity.stop_never,
            retry=tenacity.retry_if_exception_type((OSError, ProtocolError)),
            sleep=dial.pause,
        )
        return await retrying(self._greet, dial.address)

    async def _greet(
        self, address: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Hello]:
        try:
            reader, writer = await transfer.connect(address)
        except OSError as error:
            if error.errno == errno.EHOSTUNREACH:
                self.complain(
                    address,
                    "no route to it; on macOS also what a missing permission for the local network"
                    " looks like, in which case the fault is here and not there",
                )
            raise
        try:
            writer.write(encode(self.me.frame()))
            async with asyncio.timeout(HELLO_SECONDS):
                first = await transfer.read_frame(reader, HELLO_BYTES)
            hello = self._checked(first)
            writer.write(transfer.proof(first.get("challenge")))
        except BaseException as error:
            writer.transport.abort()
            if isinstance(error, ProtocolError):
                self.complain(address, str(error))
            raise
        return reader, writer, hello

    async def _hold_outgoing(
        self,
        dial: Dial,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: Hello,
    ) -> None:
        if hello.node == self.me.node:
            self._complain_of_namesake(hello, dial.address)
            raise OwnAddress("it is this node's own")
        for address in hello.addresses:
            self._learn(address)
        peer = self._meet(hello)
        wire = peer.wires[dial.address] = Wire(dial.address, writer)
        self._choose(peer)
        self._maybe_connected(peer)
        reason = "it closed its connection"
        try:
            await self._read_pongs(peer, wire, reader)
            if peer.announced:
                # Its last words may be on another connection, which ends at the same time.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LAST_WORDS_SECONDS):
                        await peer.gone.wait()
        except OSError as error:
            reason = f"its connection failed: {error.strerror or error}"
        except (ProtocolError, *transfer.WRONG_SHAPE):
            reason = "it sent something on a connection that is ours to send on"
            self._count_bad(peer.node, reason)
            self._drop(peer, reason)
        finally:
            if peer.wires.get(wire.address) is wire:
                del peer.wires[wire.address]
            self._fewer(peer, reason)

    async def _read_pongs(self, peer: Peer, wire: Wire, reader: asyncio.StreamReader) -> None:
        """The only answers that come on a connection that we opened, until it ends."""
        decoder = Decoder()
        loop = asyncio.get_running_loop()
        while data := await reader.read(_READ_BYTES):
            for frame in decoder.feed(data):
                if frame.get("t") != "pong" or type(frame.get("n")) is not int:
                    raise ProtocolError("no pong")
                wire.pong(loop.time(), frame["n"])

    # --- addresses of one peer --------------------------------------------------------------------

    async def _mind_wires(self) -> None:
        """Ping every address, judge it by its answers, and move where another one is better."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += PING_SECONDS
            await asyncio.sleep(max(0.0, due - loop.time()))
            now = loop.time()
            late, due = now - due > PING_SECONDS, max(due, now - PING_SECONDS)
            for peer in list(self._peers.values()):
                self._mind(peer, now, late)

    def _mind(self, peer: Peer, now: float, late: bool) -> None:
        peer.settled = now - peer.announced_at >= SETTLE_SECONDS
        every = PING_SECONDS if len(peer.addresses) > 1 else SELDOM_PING_SECONDS
        for wire in list(peer.wires.values()):
            if late:
                wire.forgive()
            elif len(peer.wires) > 1:
                wire.judge(now)
            if peer.announced and wire.due(now, every):
                wire.writer.write(encode({"t": "ping", "n": wire.ping(now)}))
        self._choose(peer)

    def _choose(self, peer: Peer) -> None:
        before = peer.active
        if peer.choose() and peer.announced and before is not None and peer.active is not None:
            log.info("peer moved", node=peer.node, address=peer.address, before=before.address)
            self.call.moved(peer.node, peer.boot, peer.address)
        if peer.announced and peer.news():
            self.call.paths(peer.node, peer.paths())

    async def _measure(self, peer: Peer) -> None:
        """What each address of a peer that has several carries, by one short transfer each."""
        loop = asyncio.get_running_loop()
        sink = os.open(os.devnull, os.O_WRONLY)
        try:
            # In turns, and the best counts: the machine may have been busy during one.
            for address in peer.addresses * MEASUREMENTS:
                began = loop.time()
                try:
                    size = await self.fetch(address, {"what": "blank"}, sink, BLANK_BYTES)
                except OperationError as error:
                    log.info("address could not be measured", address=address, reason=str(error))
                    continue
                speed = size / max(loop.time() - began, 1e-6)
                peer.speeds[address] = max(speed, peer.speeds.get(address, 0.0))
        finally:
            os.close(sink)
        self._choose(peer)

    def _complain_of_namesake(self, hello: Hello, source: str) -> None:
        if hello.boot != self.me.boot:
            self.complain(source, f"its node id {hello.node!r} is this node's, too")

    # --- connections that others open -------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing or len(self._tasks) >= MAX_CONNECTIONS:
            self.complain("an incoming connection", f"{MAX_CONNECTIONS} are open already")
            writer.transport.abort()
            return
        transfer.tune(writer.transport)
        serving = self._run(self._serve(reader, writer))
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
                await self._answer_fetch(first, writer)
                return
            source = hello.node
            if hello.node == self.me.node:
                self._complain_of_namesake(hello, hello.address)
            else:
                await self._hold_incoming(hello, reader, writer)
        except ProtocolError as error:
            self._count_bad(source, str(error))
        except TimeoutError as error:
            self.complain(source, error.strerror or "no hello came")
        except OSError as error:
            log.debug("connection failed", source=source, reason=str(error))
        finally:
            self._strangers.pop(writer, None)
            await transfer.close(writer)

    async def _proved(
        self, first: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Hello | None:
        """Who has connected, or None if it only fetches; it is live, and no recording."""
        if first.get("t") == "fetch":
            if first.get("what") in CHANGING and not await transfer.challenge({}, reader, writer):
                raise ProtocolError(f"it wants to {first['what']} and did not hear our answer")
            return None
        # The other side is told who we are even if we refuse it: it then knows why.
        try:
            hello = self._checked(first)
        except ProtocolError:
            writer.write(encode(self.me.frame()))
            raise
        if not await transfer.challenge(self.me.frame(), reader, writer):
            raise ProtocolError(f"it says it is {hello.node[:80]!r} and did not hear our answer")
        return hello

    async def _answer_fetch(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if request.get("cluster") != self.me.cluster_name:
            writer.write(encode({"error": "this daemon is of another cluster"}))
            return
        if request.get("what") == transfer.RELAY:
            await self._relay(request, writer)
        else:
            await transfer.answer(request, writer, self.call.serve)

    async def _relay(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """Fetch for somebody whose own link to that node is dead."""
        node, wanted = request.get("node"), request.get("request")
        if not isinstance(wanted, dict) or wanted.get("what") == transfer.RELAY:
            raise ProtocolError("it wants nothing that can be passed on")
        address = self.address_of(NodeId(str(node)))
        try:
            if address is None:
                raise OperationError(f"{node} is not connected")
            self._require_link(address)
        except OperationError as error:
            await transfer.refuse(writer, error)
        else:
            await transfer.relay(address, self._ours(wanted), writer)

    async def _hold_incoming(
        self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for address in hello.addresses:
            self._learn(address)
        peer = self._meet(hello)
        peer.incoming.append(writer)
        if len(peer.incoming) > MAX_INCOMING:
            peer.incoming.pop(0).transport.abort()
        self._maybe_connected(peer)
        reason = "it closed its connection"
        try:
            await self._read_messages(peer, reader, writer)
        except OSError as error:
            reason = f"its connection failed: {error.strerror or error}"
        except (ProtocolError, *transfer.WRONG_SHAPE) as error:
            reason = f"it sent what no daemon sends: {error!r}"
            self._count_bad(peer.node, reason)
            self._drop(peer, reason)
        finally:
            if writer in peer.incoming:
                peer.incoming.remove(writer)
            self._fewer(peer, reason)

    async def _read_messages(
        self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        decoder = Decoder()
        while data := await reader.read(_READ_BYTES):
            for frame in decoder.feed(data):
                if frame.get("t") == "ping":
                    writer.write(encode({"t": "pong", "n": frame.get("n")}))
                    continue
                # It sends once it has seen both connections; we may see ours a moment later.
                await peer.known.wait()
                if self._peers.get(peer.node) is not peer:
                    return
                self.call.message(peer.node, frame)
        if decoder.pending_bytes:
            raise ProtocolError("its connection ended inside a frame")

    def _learn(self, address: str) -> None:
        try:
            host, _ = split_address(address)
        except ValueError as error:
            raise ProtocolError(f"it gives no address: {error}") from None
        if self.insecure or is_loopback(host):
            self._dial(address, learned=True)

    # --- peers ------------------------------------------------------------------------------------

    def _checked(self, frame: dict[str, Any]) -> Hello:
        try:
            hello = self.me.check(frame)
        except Refused:
            self.counters.refused_hellos += 1
            raise
        if hello.node in self._shunned:
            raise TimeoutError(errno.ETIMEDOUT, "the link is cut on purpose")
        return hello

    def _meet(self, hello: Hello) -> Peer:
        peer = self._peers.get(hello.node)
        if peer is not None and peer.boot != hello.boot:
            self._drop(peer, "its daemon was started again")
            peer = None
        if peer is None:
            addresses = hello.addresses
            peer = Peer(hello.node, hello.boot, hello.address, addresses)
            self._peers[hello.node] = peer
        return peer

    def _maybe_connected(self, peer: Peer) -> None:
        if peer.announced or not peer.wires or not peer.incoming:
            return
        peer.announced, peer.announced_at = True, asyncio.get_running_loop().time()
        peer.known.set()
        log.info("peer connected", node=peer.node, address=peer.address)
        self.call.connected(peer.node, peer.boot, peer.address)
        self._choose(peer)
        if len(peer.addresses) > 1:
            self._run(self._measure(peer))

    def _fewer(self, peer: Peer, reason: str) -> None:
        """A connection ended. It takes others to be connected still.

        What is left of one that was not connected yet stays: two that ended each other's halves
        whenever they lost their own would go on so for ever.
        """
        if self._peers.get(peer.node) is not peer:
            return
        if peer.wires and peer.incoming:
            self._choose(peer)
        elif peer.announced or not peer.writers():
            self._drop(peer, reason)

    def _drop(self, peer: Peer, reason: str) -> None:
        if self._peers.get(peer.node) is not peer or self._closing:
            return
        del self._peers[peer.node]
        peer.gone.set()
        peer.known.set()
        for writer in peer.writers():
            writer.transport.abort()
        if peer.announced:
            peer.announced = False
            log.info("peer disconnected", node=peer.node, reason=reason)
            self.call.disconnected(peer.node, peer.boot, reason)

    def _count_bad(self, source: str, reason: str) -> None:
        self.counters.bad_frames += 1
        self.complain(source, reason)


def is_loopback(host: str) -> bool:
    """Whether a host name or IPv4 address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
