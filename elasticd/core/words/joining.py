"""What is said to somebody who wants to become a member, and by them (docs/protocols.md §4).

They have no certificate yet. So they hear no name of the cluster before they have shown a token. A
member that renews its certificate shows the one that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.core.words.codec import Words
from elasticd.types import NodeId

ASKED_BYTES = 16 * 1024
ANSWERED_BYTES = 64 * 1024
"""Of a frame."""
MOST_PEERS = 64
"""Addresses that a new member is told; it meets the others through them."""


@dataclass(frozen=True, slots=True)
class ShowAuthority:
    """The first word: whose token pins this certificate (PEM) may go on. Nothing in it names the
    cluster or a node."""

    kind: ClassVar = "authority"
    certificate: bytes
    proof: bytes
    """The authority's signature on the certificate that this end showed in the handshake: it is
    the node that makes members."""


@dataclass(frozen=True, slots=True)
class Join:
    """Shall I be a member? Once the certificate is the token's."""

    kind: ClassVar = "join"
    secret: bytes
    """The token's."""
    node: str
    """What it would be called. It may not be said that this is wrong to who has no token; so it is
    checked behind that (trust/issuing.py)."""
    request: bytes
    """For a certificate of its key (PEM)."""
    address: str = ""
    """Where it will listen."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Yes. On the disk of who says it this is noted by now."""

    kind: ClassVar = "admitted"
    certificate: bytes
    secret: bytes
    """All members know it, and nobody else."""
    peers: tuple[str, ...]
    """Where members are ("host:port"), each once, first who says it; at most
    :data:`MOST_PEERS`."""
    cluster: str = "local"
    """Its name, on which all agree, as on ``partition``."""
    partition: str = "available"
    more: tuple[str, ...] = ()
    """Other addresses of the same members, as many at most."""


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """No. Who has no token hears nothing but that."""

    kind: ClassVar = "not_admitted"
    reason: str


@dataclass(frozen=True, slots=True)
class Renew:
    """May I have a certificate for my new key? From a member, which has shown that of its old
    one."""

    kind: ClassVar = "renew"
    node: NodeId
    request: bytes
    """For a certificate of the new key (PEM)."""
    address: str = ""
    """Where it listens."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """Yes. On the disk of who says it this is noted by now."""

    kind: ClassVar = "renewed"
    certificate: bytes


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """No."""

    kind: ClassVar = "not_renewed"
    reason: str


ToGuest = ShowAuthority | Admitted | NotAdmitted
ToRenewer = Renewed | NotRenewed

FROM_GUEST: Words[Join] = Words(Join)
TO_GUEST: Words[ToGuest] = Words(ToGuest)
FROM_RENEWER: Words[Renew] = Words(Renew)
TO_RENEWER: Words[ToRenewer] = Words(ToRenewer)
