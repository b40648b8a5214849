"""Who may have a certificate, of those who ask with a join token. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from elasticd.errors import OperationError
from elasticd.settings.config import split_address
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import Issued
from elasticd.trust.revoked import Revoked
from elasticd.types import OF_NODE_ID, NodeId, is_node_id

_TICK_SECONDS = 0.002
"""More than the step of the time in a serial."""


@dataclass(frozen=True, slots=True)
class GivenCertificate:
    """The newest certificate of a node that joined here."""

    serial: int
    key: str
    """The digest of its key: the same may ask again, since its node may not have heard."""
    at_unix: float
    address: str = ""
    """Where it said that it would listen."""


Register = Mapping[NodeId, GivenCertificate]


@dataclass(frozen=True, slots=True)
class Issuer:
    """What the node that makes members knows of them.

    Attributes:
        member: itself.
        revoked: who was put out.
        given: who joined here.
        known: other nodes that there are, or were.
    """

    member: MemberPapers
    revoked: Revoked
    given: Register
    known: Collection[NodeId] = ()

    def check(self, node: NodeId, key: str, address: str) -> None:
        """Whether the owner of ``key`` may be ``node``.

        Raises:
            OperationError: another one is, or the key is of a node that was put out; or that is
                no name of a node.
        """
        if not is_node_id(node):
            raise OperationError(f"a node id must be {OF_NODE_ID}")
        try:
            split_address(address)
        except ValueError:
            raise OperationError("the address at which it will listen is not host:port") from None
        if any(self._is_out(each, has) for each, has in self.given.items() if has.key == key):
            raise OperationError(
                "this key is of a node that was put out of the cluster: remove"
                " cluster-joining.key in the home, and use a new join token"
            )
        for other, has in self.given.items():
            if has.key == key and other != node:
                raise OperationError(f"this node has joined as {other} already: use that node id")
        if self._is_taken(node, key):
            raise OperationError(
                f"another node of the cluster is called {node}: choose another --node-id"
            )

    def made_at(self, node: NodeId, now: float) -> datetime:
        """The time to be in the serial of a new certificate: later than all that were made or
        revoked, whatever the clocks of the others said then.

        Raises:
            OperationError: none is.
        """
        has = self.given.get(node)
        last = max(self.revoked.serials.get(self.member.name_of(node), 0), has.serial if has else 0)
        at = max(now, Issued("", last).made_unix + _TICK_SECONDS)
        try:
            return datetime.fromtimestamp(at, UTC)
        except (ValueError, OverflowError, OSError):
            raise OperationError(f"{node} was put out for good: choose another --node-id") from None

    def _is_taken(self, node: NodeId, key: str) -> bool:
        if node == self.member.node:
            return True
        if (has := self.given.get(node)) is not None:
            return has.key != key and not self._is_out(node, has)
        return node in self.known and self.member.name_of(node) not in self.revoked.serials

    def _is_out(self, node: NodeId, has: GivenCertificate) -> bool:
        return self.revoked.holds(Issued(self.member.name_of(node), has.serial))
