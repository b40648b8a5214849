"""A node that lets others in, on a real port with real TLS, and what its guests hear."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from elasticd.client import joining
from elasticd.client.joining import Joined
from elasticd.core.words.connections import Errand
from elasticd.core.words.joining import FROM_GUEST, Join
from elasticd.errors import ProtocolError
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.config import split_address
from elasticd.shell.control.admission import Admission
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import founding, issuing, papers
from elasticd.trust import authority, tokens
from elasticd.trust.issuing import Register
from elasticd.trust.member import MemberPapers
from elasticd.trust.revoked import Revoked
from elasticd.trust.tokens import OpenToken, Token
from elasticd.types import NodeId

T = TypeVar("T")
NOW = 1_700_000_000.0
NODE, CLUSTER = NodeId("secret-node-name"), "secret-cluster-name"
REACHED, PEER = NodeId("reached"), "10.77.0.1:7070"
OTHER, PEERS_OTHER = "10.78.0.9:7070", "10.78.0.1:7070"
"""Where else the host and its peer are."""
GUEST = NodeId("guest")
Admit = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def credentials(home: Path, member: MemberPapers) -> Credentials:
    folder = papers.folder_of(home)
    return Credentials(member, folder / papers.NODE, folder / papers.KEY, Revoked())


@dataclass
class Host:
    """The first node of a cluster."""

    home: Path
    known: tuple[NodeId, ...] = ()
    clock: float = NOW
    errors: list[Exception] = field(default_factory=list)
    """What its callback raised."""

    def __post_init__(self) -> None:
        self.home.mkdir()
        self.member = founding.found(self.home, NODE)
        self.credentials = credentials(self.home, self.member)
        self.admission = Admission(
            self.home, self.credentials, CLUSTER, "available",
            members=lambda: {NODE: self.address, REACHED: PEER},
            more=lambda: (self.address, OTHER, PEER, PEERS_OTHER),
            known=lambda: self.known, now=lambda: self.clock,
        )  # fmt: skip
        self.address = ""

    def token(self, uses: int = 1, seconds: float = 60.0, letter: bytes = b"s") -> Token:
        """One that is open."""
        secret = letter * tokens.SECRET_BYTES
        issuing.open_token(self.home, tokens.opened(secret, NOW + seconds, uses), NOW)
        return Token(self.member.cluster_id, secret, (self.address,))

    @property
    def tokens(self) -> tuple[OpenToken, ...]:
        return papers.read_tokens(self.home)

    @property
    def joined(self) -> Register:
        return issuing.read(self.home)

    @contextlib.asynccontextmanager
    async def listening(self, admit: Admit | None = None) -> AsyncIterator[None]:
        """Takes guests."""
        async with serving(admit or self.admission.admit, self.credentials, self.errors) as address:
            self.address = address
            yield


@contextlib.asynccontextmanager
async def serving(admit: Admit, shown: Credentials, errors: list[Exception]) -> AsyncIterator[str]:
    """Has every guest talk with ``admit``, as the daemon's port does; its address."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(accepted: socket.socket) -> None:
        try:
            assert await loop.sock_recv(accepted, 1) == Errand.JOIN.value
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=shown.guests
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            try:
                async with asyncio.timeout(20):
                    await admit(reader, writer)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        except (OSError, ProtocolError, AssertionError) as error:
            errors.append(error)
            accepted.close()

    async def accept() -> None:
        while True:
            accepted, _ = await loop.sock_accept(listening)
            task = asyncio.create_task(serve(accepted))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        listening.setblocking(False)
        accepting = asyncio.create_task(accept())
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            accepting.cancel()
            await asyncio.wait([accepting, *tasks])


_guests = ThreadPoolExecutor(16, "guest")
"""Of their own: the daemon's threads are few."""


async def _aside(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_guests, work, *arguments)


async def ask(
    token: Token,
    key: bytes | None = None,
    node: NodeId = GUEST,
    listen: str = "10.77.0.9:7070",
    elsewhere: Callable[[], tuple[str, ...]] = tuple,
) -> Joined:
    """Join, as the command does."""
    own = key or authority.new_key()
    return await _aside(joining.ask, token, own, node, lambda host: listen, elsewhere)


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


@dataclass
class Heard:
    """What somebody without a certificate gets of a node: all of it."""

    certificate: bytes
    data: bytes

    @property
    def words(self) -> list[dict[str, Any]]:
        return Decoder().feed(self.data)


async def say(address: str, data: bytes) -> Heard:
    """Send ``data`` after the handshake, and listen to the end; who sent no whole frame hangs up
    first."""
    whole = len(data) >= 4 and len(data) - 4 >= int.from_bytes(data[:4], "big")
    too_long = data[:1] > b"\0"
    return await _aside(_say, address, data, not whole and not too_long)


def _say(address: str, data: bytes, end: bool) -> Heard:
    heard = b""
    with socket.create_connection(split_address(address), 20) as plain:
        plain.sendall(Errand.JOIN.value)
        with context().wrap_socket(plain, suppress_ragged_eofs=True) as line:
            shown = line.getpeercert(binary_form=True) or b""
            with contextlib.suppress(OSError):
                line.sendall(data)
                if end:
                    _hang_up(line)
                while piece := line.recv(1 << 16):
                    heard += piece
    return Heard(shown, heard)


def _hang_up(line: ssl.SSLSocket) -> None:
    """Nothing more comes, but the other end may go on to talk."""
    socket.socket.shutdown(line, socket.SHUT_WR)


def asked(
    token: Token,
    key: bytes | None = None,
    node: str = GUEST,
    address: str = "10.77.0.9:7070",
    request: bytes | None = None,
) -> bytes:
    """The frame of a guest."""
    wanted = authority.request_of(key or authority.new_key()) if request is None else request
    return encode(FROM_GUEST.encode(Join(token.secret, NodeId(node), wanted, address)))
