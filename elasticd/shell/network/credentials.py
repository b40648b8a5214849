"""TLS 1.3 between daemons: each end shows a certificate of the cluster's authority.

A server checks that only after its client believes the handshake is done, so what decides is the
server's first frame (RFC 8446, 4.4.2.4). Sessions are not resumed: each connection is checked.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import Any, Protocol

from elasticd.errors import DamageError
from elasticd.shell.network.hello import Refused
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import Issued
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId

_NO_CHECK_TIME, _CHECK_SS_SIGNATURE = 0x200000, 0x4000
"""X509_V_FLAG_…, which Python does not name. The second: the authority's own signature counts."""
_OTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")


class Tls(Protocol):
    """An end of a connection, after the handshake."""

    def getpeercert(self) -> dict[str, Any] | None: ...


class Superseded(Refused):
    """A member whose certificate is good for nothing but to renew it."""


class Credentials:
    """What this daemon shows others, and whom it lets in.

    Attributes:
        member: what makes it a member.
        revoked: who was put out.
        renewal: which certificates are old.
        incoming: for connections that members open to this daemon.
        outgoing: for those that it opens to members.
        guests: for those who want to become members: they have no certificate yet.
    """

    def __init__(
        self,
        member: MemberPapers,
        certificate: Path,
        key: Path,
        revoked: Revoked,
        renewal: Renewal | None = None,
    ) -> None:
        self.revoked = revoked
        self.renewal = renewal or Renewal()
        self.show(member, certificate, key)

    def show(self, member: MemberPapers, certificate: Path, key: Path) -> None:
        """Show this from now on; what is connected stays so.

        Raises:
            OSError, ValueError: it can't be read; what was shown before still is.
        """
        incoming = _context(ssl.PROTOCOL_TLS_SERVER, member, certificate, key)
        outgoing = _context(ssl.PROTOCOL_TLS_CLIENT, member, certificate, key)
        guests = _context(ssl.PROTOCOL_TLS_SERVER, member, certificate, key)
        guests.verify_mode = ssl.CERT_NONE
        self.member = member
        self._own: Issued | None = None
        self.incoming, self.outgoing, self.guests = incoming, outgoing, guests

    @property
    def own(self) -> Issued:
        """What its certificate says, as it shows it itself. Dates don't count.

        Raises:
            ssl.SSLError: what makes it a member doesn't fit together.
        """
        if self._own is None:
            both = self.incoming, self.outgoing
            flags = [context.verify_flags for context in both]
            for context in both:
                context.verify_flags |= _NO_CHECK_TIME | _CHECK_SS_SIGNATURE
            try:
                self._own = shown_by(_shaken_hands(*both))
            finally:
                for context, before in zip(both, flags, strict=True):
                    context.verify_flags = before
        return self._own

    def other_end(self, tls: Tls) -> Issued:
        """Whose certificate the other end has shown.

        Raises:
            Refused: it was put out of the cluster, or names nobody.
            Superseded: it may only renew it.
        """
        member = self.who_may_renew(tls)
        self._refuse_old(member)
        return member

    def who_may_renew(self, tls: Tls) -> Issued:
        """As :meth:`other_end`, however old the certificate is."""
        member = shown_by(tls)
        self._refuse_out(member)
        return member

    def _refuse_out(self, member: Issued) -> None:
        if self.revoked.holds(member):
            raise Refused("its certificate was revoked: it was put out of the cluster")

    def _refuse_old(self, member: Issued) -> None:
        if self.renewal.refuses(member):
            raise Superseded("its certificate is of before all were renewed: it has to renew it")

    def check(self, member: Issued, node: NodeId) -> None:
        """Raises Refused: the certificate that was shown isn't that of ``node``, or was revoked
        since, or is old since."""
        self._refuse_out(member)
        self._refuse_old(member)
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


def prove(member: MemberPapers, certificate: Path, key: Path) -> None:
    """Find out whether what makes a member fits together: it shows itself its certificate, as it
    would another, in a handshake in memory. Dates don't count: a clock that is wrong damages
    nothing.

    Raises:
        DamageError: it doesn't.
    """
    try:
        takes = _context(ssl.PROTOCOL_TLS_SERVER, member, certificate, key)
        opens = _context(ssl.PROTOCOL_TLS_CLIENT, member, certificate, key)
        for context in (takes, opens):
            context.verify_flags |= _NO_CHECK_TIME | _CHECK_SS_SIGNATURE
        shown = shown_by(_shaken_hands(takes, opens))
    except (ssl.SSLError, Refused, ValueError) as error:
        raise DamageError(_damage(error)) from None
    if shown.name != member.name_of(member.node):
        raise DamageError(f"the certificate is not that of {member.node}")


def _shaken_hands(takes: ssl.SSLContext, opens: ssl.SSLContext) -> ssl.SSLObject:
    """The server's end of a handshake, which has the client's certificate."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = opens.wrap_bio(down, up), takes.wrap_bio(up, down, server_side=True)
    # Two rounds; a third if the server wants another key share.
    for end in (client, server, client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    server.do_handshake()
    return server


def _damage(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "the certificate is of another authority"
    if isinstance(error, ssl.SSLError) and error.reason in _OTHER_KEY:
        return "the certificate is of another key"
    return "the certificate, its key or the authority's certificate can't be read"


def _context(protocol: int, member: MemberPapers, certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # addresses change; the certificate names the node
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=member.authority.decode("ascii"))
    # A key that wants a password is none of ours, and nobody is there to be asked for it.
    context.load_cert_chain(certificate, key, password=_no_password)
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


def _no_password() -> str:
    raise ValueError("the private key wants a password")


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
