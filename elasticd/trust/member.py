"""What a node shows and knows as a member of its cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.errors import DamageError
from elasticd.trust import authority
from elasticd.trust.authority import Authority
from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class Member:
    """Certificates and keys are PEM."""

    node: NodeId
    secret: bytes
    """Known to all members, and to them only."""
    authority: bytes
    certificate: bytes
    key: bytes
    peers: tuple[str, ...] = ()
    """Where other members were when it joined ("host:port")."""

    @property
    def cluster_id(self) -> str:
        return authority.cluster_id(self.authority)

    def name_of(self, node: NodeId) -> str:
        """What another node's certificate must say."""
        return authority.opaque_name(self.secret, node)

    def check(self) -> None:
        """Raises DamageError: its parts don't belong together."""
        if not authority.belongs(self.certificate, self.authority):
            raise DamageError("the certificate is of another authority")
        if not authority.fits(self.certificate, self.key):
            raise DamageError("the certificate is of another key")
        if authority.issued(self.certificate).name != self.name_of(self.node):
            raise DamageError(f"the certificate is not that of {self.node}")


def admit(founder: Authority, node: NodeId, secret: bytes) -> Member:
    """A member whose key is made here: the first of a cluster, or one on the same machine."""
    key = authority.new_key()
    certificate = founder.issue(authority.request_of(key), node, secret)
    return Member(node, secret, founder.certificate, certificate, key)
