"""TLS 1.3 between daemons: each end shows a certificate of the cluster's authority.

A server checks that only after its client believes the handshake is done, so what decides is the
server's first frame (RFC 8446, 4.4.2.4). Sessions are not resumed: each connection is checked.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Protocol

from elasticd.shell.network.hello import Refused
from elasticd.trust.authority import Issued
from elasticd.trust.member import Member
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId


class Tls(Protocol):
    """An end of a connection, after the handshake."""

    def getpeercert(self) -> dict[str, Any] | None: ...


class Credentials:
    """What this daemon shows others, and whom it lets in.

    Attributes:
        member: what makes it a member.
        revoked: who was put out.
        incoming: for connections that members open to this daemon.
        outgoing: for those that it opens to members.
        guests: for those who want to become members: they have no certificate yet.
    """

    def __init__(self, member: Member, certificate: Path, key: Path, revoked: Revoked) -> None:
        self.member = member
        self.revoked = revoked
        self.incoming = _context(ssl.PROTOCOL_TLS_SERVER, member, certificate, key)
        self.outgoing = _context(ssl.PROTOCOL_TLS_CLIENT, member, certificate, key)
        self.guests = _context(ssl.PROTOCOL_TLS_SERVER, member, certificate, key)
        self.guests.verify_mode = ssl.CERT_NONE

    def other_end(self, tls: Tls) -> Issued:
        """Whose certificate the other end has shown.

        Raises:
            Refused: it was put out of the cluster, or names nobody.
        """
        member = shown_by(tls)
        if self.revoked.holds(member):
            raise Refused("its certificate was revoked: it was put out of the cluster")
        return member

    def check(self, member: Issued, node: NodeId) -> None:
        """Raises Refused: the certificate that was shown isn't that of ``node``."""
        if member.name != self.member.name_of(node):
            raise Refused(
                f"it says that it is {node[:80]!r}, and its certificate is another node's"
            )


def shown_by(tls: Tls) -> Issued:
    """Whose certificate the other end has shown.

    Raises:
        Refused: it names nobody.
    """
    found = tls.getpeercert() or {}
    names = [value for ((key, value),) in found.get("subject", ()) if key == "commonName"]
    if len(names) != 1 or "serialNumber" not in found:
        raise Refused("its certificate names nobody")
    return Issued(names[0], int(found["serialNumber"], 16))


def _context(protocol: int, member: Member, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # addresses change; the certificate names the node
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=member.authority.decode("ascii"))
    context.load_cert_chain(certificate, key)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


def reason_of(error: ssl.SSLError) -> str:
    """Why there is no connection, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, _HAS_EXPIRED
            return f"its certificate has no date of now ({error.verify_message}): a clock is wrong"
        return "it is of another cluster: its certificate is not of this cluster's authority"
    said = (error.reason or "").lower()
    if "peer_did_not_return" in said:
        return "it shows no certificate: it is no member"
    if "alert" in said:
        return "it does not take this node's certificate: it is of another cluster, or put it out"
    return f"it speaks no TLS 1.3 ({said.replace('_', ' ') or error})"
