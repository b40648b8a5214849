"""With whom this daemon has connections, and what it says of those that it refuses."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticd.core.words.connections import CONNECTION, MustRenew, TwinFound
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.complaints import Complaints
from elasticd.shell.network.credentials import Credentials, shown_by
from elasticd.shell.network.hello import Hello, Identity, Refused
from elasticd.shell.network.twins import Twins
from elasticd.shell.network.wall import Wall
from elasticd.trust import renewal
from elasticd.trust.names import Issued
from elasticd.trust.renewal import Renewal
from elasticd.types import NodeId


@dataclass(slots=True)
class Refusals:
    """How much was refused."""

    bad_frames: int = 0
    hellos: int = 0


@dataclass(slots=True)
class Gate:
    """Judges addresses, hellos and frames.

    Attributes:
        me: what this daemon says of itself.
        credentials: what it shows of itself, and whose certificates it takes.
    """

    me: Identity
    credentials: Credentials
    refusals: Refusals = field(default_factory=Refusals)
    complain: Complaints = field(default_factory=lambda: Complaints("peers"))
    wall: Wall = field(default_factory=Wall)
    twins: Twins = field(default_factory=Twins)
    _shunned: dict[NodeId, str] = field(default_factory=dict)
    """Nodes whose link is cut on purpose, and where each was reached last."""

    def is_own(self, address: str) -> bool:
        return address == self.me.address or address in self.me.addresses

    def check(self, frame: dict[str, Any], member: Issued) -> Hello:
        """What another daemon says of itself, which has shown that member's certificate.

        Raises:
            ProtocolError: it may not be a peer, or it is no daemon.
            TimeoutError: the link with it is cut on purpose.
        """
        hello = self.me.check(frame)
        self.credentials.check(member, hello.node)
        if hello.node in self._shunned:
            raise TimeoutError(errno.ETIMEDOUT, "the link is cut on purpose")
        return hello

    def admit(self, hello: Hello, connected: str | None) -> None:
        """``connected``: the run of that node's daemon to which there are connections.

        Raises:
            RefusedTwin: another machine is that node.
        """
        if hello.node != self.me.node:
            self.twins.admit(hello, connected)

    def require_no_twin(self, frame: dict[str, Any]) -> None:
        """Read the first frame of a daemon, which may take another machine for this node.

        Raises:
            Refused: it does.
            ProtocolError: it makes no sense.
        """
        if (word := CONNECTION.of_kind(frame, TwinFound)) is not None:
            address = word.at[:80]
            self.twins.met_namesake(address)
            raise Refused(f"it takes the machine at {address!r} for this node, {self.me.node}")

    def refuse(self, source: str, error: ProtocolError) -> None:
        """Remember that a daemon was refused, or something that is none."""
        if isinstance(error, Refused):
            self.refusals.hellos += 1
        else:
            self.refusals.bad_frames += 1
        self.complain(source, str(error))

    def serial(self, writers: Sequence[asyncio.StreamWriter]) -> int:
        """The largest of the certificates that were shown on these connections."""
        shown = [shown_by(writer.get_extra_info("ssl_object")) for writer in writers]
        return max((member.serial for member in shown), default=0)

    def is_out(self, writer: asyncio.StreamWriter) -> bool:
        """Whether the other end of a connection was put out since it was opened."""
        try:
            self.credentials.who_may_renew(writer.get_extra_info("ssl_object"))
        except Refused:
            return True
        return False

    def is_old(self, writer: asyncio.StreamWriter) -> bool:
        """Whether the certificate that was shown on a connection would be refused now."""
        return self.credentials.renewal.refuses(shown_by(writer.get_extra_info("ssl_object")))

    def must_renew(self) -> dict[str, Any]:
        """What somebody is told whose certificate is old."""
        return CONNECTION.encode(MustRenew(renewal.word_of(self.credentials.renewal.refused)))

    def told_to_renew(self, frame: dict[str, Any], member: Issued) -> Renewal | None:
        """What the first frame of a daemon says that refuses our certificate for being old; None:
        it says something else.

        Raises:
            ProtocolError: it makes no sense.
        """
        word = CONNECTION.of_kind(frame, MustRenew)
        return None if word is None else renewal.told(word.wanted, member)

    def shun(self, node: NodeId, address: str) -> None:
        self._shunned[node] = address

    def unshun(self, node: NodeId) -> None:
        self._shunned.pop(node, None)

    def require_link(self, address: str) -> None:
        """Refuse to fetch over a link that is cut on purpose.

        Raises:
            OperationError: it is.
        """
        if address in self._shunned.values():
            raise OperationError(f"{address} can't be reached: the link is cut on purpose")

    def count_bad(self, source: str, reason: str) -> None:
        self.refusals.bad_frames += 1
        self.complain(source, reason)

    def complain_of_namesake(self, hello: Hello, source: str) -> None:
        """Nothing is wrong with a connection from this daemon to itself."""
        if hello.boot != self.me.boot:
            self.twins.met_namesake(hello.address)
            self.complain(source, f"its node id {hello.node!r} is this node's, too")
