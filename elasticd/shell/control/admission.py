"""Lets those become members who have a join token: the server's side of words/joining.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from elasticd.core.words.joining import (
    ASKED_BYTES,
    FROM_GUEST,
    MOST_PEERS,
    TO_GUEST,
    Admitted,
    Join,
    NotAdmitted,
    ShowAuthority,
    ToGuest,
)
from elasticd.errors import DamageError, OperationError, ProtocolError
from elasticd.ipc.frames import encode
from elasticd.settings.rules import one_line
from elasticd.shell.clock import unix_seconds
from elasticd.shell.complaints import Complaints
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.transfer import read_frame
from elasticd.shell.storage import issuing, papers
from elasticd.trust.issuing import Register
from elasticd.trust.names import Issued
from elasticd.types import NodeId, Partition

if TYPE_CHECKING:
    from elasticd.trust.authority import Authority

log = structlog.get_logger(__name__)

_SHOWN_LETTERS = 80
_NOT_HERE = "this node makes no members: use a token of the one that does"
_NOT_NOW = "the node that makes members can't do it now: its log says why"


@dataclass(frozen=True, slots=True)
class Admission:
    """Of one daemon.

    Attributes:
        home: where its papers are.
        cluster: its name, which a new member is told.
        members: where members are now ("host:port"), this one first.
        more: all addresses of theirs.
        known: the ids of all nodes that there are, or were.
    """

    home: Path
    credentials: Credentials
    cluster: str
    partition: Partition
    members: Callable[[], Mapping[NodeId, str]]
    more: Callable[[], Collection[str]] = tuple
    known: Callable[[], Collection[NodeId]] = tuple
    now: Callable[[], float] = unix_seconds
    _complain: Complaints = field(default_factory=lambda: Complaints("joining"))
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _answering: set[asyncio.Task[Admitted | NotAdmitted]] = field(default_factory=set)

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk with a stranger, after the handshake; the connection stays open.

        Raises:
            ProtocolError: what it says is none of it.
            OSError: the connection fails.
        """
        issuer = await asyncio.to_thread(self._issuer)
        if issuer is None:
            await _say(NotAdmitted(_NOT_HERE), writer)
            return
        founder, proof = issuer
        await _say(ShowAuthority(founder.certificate, proof), writer)
        asked = FROM_GUEST.decode(await read_frame(reader, ASKED_BYTES))
        answering = asyncio.create_task(self._answer(asked, founder))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)
        # It goes on to its end if the guest leaves meanwhile, so that one thread at most is busy.
        await _say(await asyncio.shield(answering), writer)

    def _issuer(self) -> tuple[Authority, bytes] | None:
        """The authority, and what it says of this node's certificate; None: it isn't here."""
        try:
            if not papers.makes_members(self.home):
                return None
            # Loaded only when somebody joins: its cryptography takes 13 MiB.
            from elasticd.shell.storage import founding

            founder = founding.founder_of(self.home)
            if founder is None:
                return None
            return founder, founder.vouch(self.credentials.member.certificate)
        except (DamageError, OSError) as error:
            self._complain("this node", f"no node can join here: {error}")
            return None

    async def _answer(self, asked: Join, founder: Authority) -> Admitted | NotAdmitted:
        async with self._turn:
            own, revoked = self.credentials.member, self.credentials.revoked
            known, now, wanted = self.known(), self.now(), self.credentials.renewal.wanted

            def admitted() -> tuple[bytes, Register]:
                from elasticd.shell.storage import founding  # loaded by now

                return founding.admit(self.home, asked, founder, own, revoked, known, now, wanted)

            try:
                certificate, register = await asyncio.to_thread(admitted)
            except (OperationError, ProtocolError) as error:
                return self._refused(asked, error)
            except OSError as error:
                self._complain(_shown(asked.node), f"it can't join: {error}")
                return NotAdmitted(_NOT_NOW)
        log.info("a node joined the cluster", joined=asked.node, address=asked.address)
        members = self.members()
        others = [
            given.address
            for node, given in register.items()
            if node not in members and not revoked.holds(Issued(own.name_of(node), given.serial))
        ]
        every = dict.fromkeys((*members.values(), *others))
        peers = tuple(each for each in every if each and each != asked.address)[:MOST_PEERS]
        more = tuple(each for each in self.more() if each not in every)[:MOST_PEERS]
        return Admitted(certificate, own.secret, peers, self.cluster, self.partition, more)

    def _refused(self, asked: Join, error: OperationError | ProtocolError) -> NotAdmitted:
        self._complain(_shown(asked.node), str(error))
        return NotAdmitted(_NOT_NOW if isinstance(error, issuing.FileDamaged) else str(error))


def _shown(node: str) -> str:
    return f"who would be {one_line(node[:_SHOWN_LETTERS])!r}"


async def _say(word: ToGuest, writer: asyncio.StreamWriter) -> None:
    writer.write(encode(TO_GUEST.encode(word)))
    await writer.drain()
