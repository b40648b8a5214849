"""What a node shows and knows as a member of its cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.trust import names
from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class MemberPapers:
    """Certificates and keys are PEM."""

    node: NodeId
    secret: bytes
    """Known to all members, and to them only."""
    authority: bytes
    certificate: bytes
    key: bytes
    peers: tuple[str, ...] = ()
    """Where other members were when it joined ("host:port"), each once: so many there were."""
    more: tuple[str, ...] = ()
    """Other addresses of the same members."""

    @property
    def cluster_id(self) -> str:
        return names.cluster_id(self.authority)

    def name_of(self, node: NodeId) -> str:
        """What another node's certificate must say."""
        return names.opaque_name(self.secret, node)
