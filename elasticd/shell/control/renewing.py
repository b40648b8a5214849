"""A member gets a new certificate from the node that makes members: both sides of that talk
(words/joining.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from elasticd.core.words.connections import Errand
from elasticd.core.words.joining import (
    ANSWERED_BYTES,
    ASKED_BYTES,
    FROM_RENEWER,
    TO_RENEWER,
    NotRenewed,
    Renew,
    Renewed,
    ToRenewer,
)
from elasticd.errors import DamageError, OperationError, ProtocolError
from elasticd.ipc.frames import encode
from elasticd.settings.rules import one_line
from elasticd.shell.clock import unix_seconds
from elasticd.shell.complaints import Complaints
from elasticd.shell.network import transfer
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.trust.names import Issued
from elasticd.types import NodeId

log = structlog.get_logger(__name__)

ASK_SECONDS = 15.0
"""Who makes members waits for its disk."""
_LONGEST_REASON = 300
_NOT_HERE = "this node makes no certificates"
_NOT_NOW = "the node that makes certificates can't do it now: its log says why"


@dataclass(frozen=True, slots=True)
class RenewalDesk:
    """Of one daemon.

    Attributes:
        home: where its papers are.
        address_of: where a node is reached now; None: it isn't.
    """

    home: Path
    credentials: Credentials
    address_of: Callable[[NodeId], str | None] = lambda node: None
    now: Callable[[], float] = unix_seconds
    _complain: Complaints = field(default_factory=lambda: Complaints("renewing"))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answering: set[asyncio.Task[ToRenewer]] = field(default_factory=set)

    async def renew(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with a member, after the handshake; the connection stays open.

        Raises:
            ProtocolError: what it says is none of it, or it was put out.
            OSError: the connection fails.
        """
        asked = FROM_RENEWER.decode(await transfer.read_frame(reader, ASKED_BYTES))
        tls = writer.get_extra_info("ssl_object")
        # Not sooner: it may have been put out while it was silent, and hears nothing then.
        shown, der = self.credentials.who_may_renew(tls), tls.getpeercert(binary_form=True)
        answering = asyncio.create_task(self._answer(asked, shown, der))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)
        # It goes on to its end if the member leaves meanwhile, so that one thread at most is busy.
        writer.write(encode(TO_RENEWER.encode(await asyncio.shield(answering))))
        await writer.drain()

    async def _answer(self, asked: Renew, shown: Issued, der: bytes) -> ToRenewer:
        async with self._turn:
            try:
                reached = self.address_of(asked.node) or ""
                certificate = await asyncio.to_thread(self._certificate, asked, shown, der, reached)
            except (OperationError, ProtocolError) as error:
                self._complain(_shown(asked.node), str(error))
                return NotRenewed(str(error))
            except (OSError, DamageError) as error:
                self._complain(_shown(asked.node), f"it can't renew its certificate: {error}")
                return NotRenewed(_NOT_NOW)
        log.info("a node renewed its certificate", renewed=asked.node)
        return Renewed(certificate)

    def _certificate(self, asked: Renew, shown: Issued, der: bytes, reached: str) -> bytes:
        if not papers.makes_members(self.home):
            raise OperationError(_NOT_HERE)
        # Loaded only when somebody renews: its cryptography takes 13 MiB.
        from elasticd.shell.storage import founding

        founder = founding.founder_of(self.home)
        if founder is None:
            raise OperationError(_NOT_HERE)
        old = founding.ShownCertificate(shown, der)
        return founding.renew(self.home, asked, old, founder, self.credentials, self.now(), reached)


def _shown(node: str) -> str:
    return f"who would renew as {one_line(node[:80])!r}"


async def ask(address: str, credentials: Credentials, wanted: Renew) -> bytes:
    """The certificate that the node at ``address`` makes, as PEM; nothing of it is checked.

    Raises:
        OperationError: it makes none, and why.
        OSError, ValueError: it can't be reached.
        ProtocolError: it is no member, or one of a version that makes none.
    """
    async with asyncio.timeout(ASK_SECONDS):
        reader, writer = await transfer.connect(address, credentials, Errand.RENEW)
        try:
            credentials.other_end(writer.get_extra_info("ssl_object"))
            writer.write(encode(FROM_RENEWER.encode(wanted)))
            answer = TO_RENEWER.decode(await transfer.read_frame(reader, ANSWERED_BYTES))
        finally:
            transfer.abort(writer)
    if isinstance(answer, NotRenewed):
        raise OperationError(one_line(answer.reason[:_LONGEST_REASON]))
    return answer.certificate


def own_request(home: Path, node: NodeId, address: str) -> Renew:
    """What this node asks with, whenever it asks.

    Raises:
        OSError: the disk is full or broken.
    """
    from elasticd.shell.storage import founding

    return Renew(node, founding.next_request(home), address)
