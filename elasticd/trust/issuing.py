"""Who may have a certificate: of those who ask with a join token, and of members who renew theirs.
Pure."""

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
    """Where it said that it would listen, or was reached when it renewed its certificate."""
    first: int = 0
    """The serial of the one with which it became a member, if this one renews that."""


Register = Mapping[NodeId, GivenCertificate]


@dataclass(frozen=True, slots=True)
class Issuer:
    """What the node that makes members knows of them.

    Attributes:
        member: itself.
        revoked: who was put out.
        given: who joined here.
        known: other nodes that there are, or were.
        wanted: up to this serial certificates are to be renewed.
        refused: up to this one they are good for that only.
    """

    member: MemberPapers
    revoked: Revoked
    given: Register
    known: Collection[NodeId] = ()
    wanted: int = 0
    refused: int = 0

    def check(self, node: NodeId, key: str, address: str) -> None:
        """Whether the owner of ``key`` may be ``node``.

        Raises:
            OperationError: another one is, or the key is of a node that was put out; or that is
                no name of a node.
        """
        if not is_node_id(node):
            raise OperationError(f"a node id must be {OF_NODE_ID}")
        _check_address(address)
        if any(self._is_out(each, has) for each, has in self.given.items() if has.key == key):
            raise OperationError(
                "this key is of a node that was put out of the cluster: remove"
                " cluster-joining.key in the home, put its folder cluster aside if that is damaged,"
                " and use a new join token"
            )
        for other, has in self.given.items():
            if has.key == key and other != node:
                raise OperationError(f"this node has joined as {other} already: use that node id")
        if self._is_taken(node, key):
            text = f"another node of the cluster is called {node}: choose another --node-id"
            if node != self.member.node:
                text += (
                    f". If that is this very machine, which has lost its key: 'elasticctl cluster"
                    f" revoke {node}' on another, 'elasticctl cluster token' on the first, then"
                    " join with that"
                )
            raise OperationError(text)

    def check_renewal(
        self, node: NodeId, shown: Issued, shown_key: str, key: str, address: str
    ) -> None:
        """Whether a member may have a certificate for its new ``key``.

        Who has the newest key of a node may: it shows the certificate of that, or asks with it
        again, since it may not have heard. Whoever has an older one only may not. Where a node is
        not in the register, since that was lost, nothing tells a refused certificate of its newest
        key from an older one: neither may.

        Args:
            shown: the certificate that it has shown, of ``shown_key``.

        Raises:
            OperationError: it may not.
        """
        _check_address(address)
        has = self.given.get(node)
        if shown.name != self.member.name_of(node) or node == self.member.node:
            raise OperationError(f"its certificate is not that of {node}")
        if self.revoked.holds(shown) or (has is not None and self._is_out(node, has)):
            raise OperationError("it was put out of the cluster")
        if key == shown_key:
            raise OperationError("it asks with its old key")
        if any(each.key == key for other, each in self.given.items() if other != node):
            raise OperationError("it asks with the key of another node")
        if has is None and shown.serial <= self.refused:
            raise OperationError(
                f"certificates as old as this one are refused, and the newest key of {node} is not"
                f" known here any more (issued.json): 'elasticctl cluster revoke {node}', remove"
                " its cluster folder, and let it join with a new token"
            )
        if has is not None and has.key not in (shown_key, key):
            raise OperationError(
                f"{node} has renewed its certificate with another key: who has the old one only"
                " can't"
            )

    def renewed(
        self, node: NodeId, shown: Issued, serial: int, key: str, address: str, reached: str = ""
    ) -> GivenCertificate:
        """What is known of a member that has renewed the certificate that it has shown.

        Args:
            address: where it says that it listens. Nobody has tried that: it takes the place of no
                other.
            reached: where it is reached now; empty: it is not.
        """
        has = self.given.get(node)
        if has is None:
            at = reached or address
            return GivenCertificate(serial, key, shown.made_unix, at, shown.serial)
        at = reached or has.address or address
        return GivenCertificate(serial, key, has.at_unix, at, has.first or has.serial)

    def made_at(self, node: NodeId, now: float) -> datetime:
        """The time to be in the serial of a new certificate: later than all that were made, are to
        be renewed or were revoked, whatever the clocks of the others said then.

        Raises:
            OperationError: none is.
        """
        has = self.given.get(node)
        revoked = self.revoked.serials.get(self.member.name_of(node), 0)
        last = max(revoked, has.serial if has else 0, self.wanted)
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


def _check_address(address: str) -> None:
    try:
        split_address(address)
    except ValueError:
        raise OperationError("the address at which it will listen is not host:port") from None


def outlived(member: MemberPapers, revoked: Revoked, given: Register) -> Revoked:
    """Certificates that are not revoked and renew one that is: whoever put the node out did not
    know of them, or has a clock that is behind."""
    found = {}
    for node, has in given.items():
        name = member.name_of(node)
        if has.first and has.first <= revoked.serials.get(name, -1) < has.serial:
            found[name] = has.serial
    return Revoked(found)
