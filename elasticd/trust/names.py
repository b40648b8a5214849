"""How certificates of members call their nodes, and clusters are told apart. Pure, and light: what
makes and reads certificates is in authority.py."""

from __future__ import annotations

import hashlib
import hmac
import ssl
from dataclasses import dataclass

from elasticd.errors import DamageError
from elasticd.types import NodeId

SECRET_BYTES = 32
DICE_BITS = 64
"""At the end of a serial."""
_END = "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Issued:
    """Who a certificate is of."""

    name: str
    """:func:`opaque_name` of the node."""
    serial: int
    """Grows with the time at which it was made: what is revoked is everything up to one."""

    @property
    def made_unix(self) -> float:
        """When, in seconds."""
        return (self.serial >> DICE_BITS) / 1000


def last_serial(unix_seconds: float) -> int:
    """The largest serial of a certificate that was made by then."""
    return (int(unix_seconds * 1000) + 1 << DICE_BITS) - 1


def opaque_name(secret: bytes, node: NodeId) -> str:
    """How a node is called in its certificate: members know the ``secret`` and can check the name,
    strangers learn nothing from it."""
    return hmac.new(secret, b"node " + node.encode(), hashlib.sha256).hexdigest()[:32]


def cluster_id(authority_pem: bytes) -> str:
    """What tells one cluster from another: the digest of its authority's certificate, 64 hex.

    Raises:
        DamageError: it is no certificate.
    """
    try:
        first = authority_pem.decode("ascii").partition(_END)[0].lstrip() + _END
        der = ssl.PEM_cert_to_DER_cert(first)
    except ValueError:
        raise DamageError("the certificate can't be read") from None
    return hashlib.sha256(der).hexdigest()
