"""What is done with a cluster's authority: a home gets one, others become members by it, and all
renew their certificates.

It loads ``cryptography``, so a daemon that is a member already loads it when somebody joins.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from elasticd.core.words.joining import Join, Renew
from elasticd.errors import DamageError, ProtocolError
from elasticd.settings.places import MEMBER
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import issuing, papers
from elasticd.shell.storage.durable import write_durable
from elasticd.trust import authority, tokens
from elasticd.trust.authority import Authority
from elasticd.trust.issuing import GivenCertificate, Issuer, Register
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import SECRET_BYTES, Issued
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId


def found(home: Path, node: NodeId) -> MemberPapers:
    """Make a new cluster in a home, whose node is the first member and makes others.

    Raises:
        OSError: the disk is full or broken; nothing has changed.
    """
    founder = Authority.make()
    member = authority.admit(founder, node, secrets.token_bytes(SECRET_BYTES))
    papers.write(home, member, founder.key)
    return member


def founder_of(home: Path) -> Authority | None:
    """The authority, where this node makes members.

    Raises:
        DamageError: its certificate is missing.
    """
    folder = papers.folder_of(home)
    try:
        key = (folder / papers.AUTHORITY_KEY).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Authority(key, (folder / papers.AUTHORITY).read_bytes())
    except OSError as error:
        raise DamageError(f"{error.filename}: {error.strerror}") from None


def admit(
    home: Path,
    asked: Join,
    founder: Authority,
    member: MemberPapers,
    revoked: Revoked,
    known: Collection[NodeId],
    now: float,
    wanted: int = 0,
) -> tuple[bytes, Register]:
    """The certificate of who asks, and all who have joined here. It is noted on disk before.

    Args:
        wanted: its serial is above that.

    Raises:
        OperationError: it is not let in, and may hear why.
        FileDamaged: of the tokens, or the register.
        ProtocolError: its request is none.
        OSError: the disk is full or broken; what it asks can be asked again.
    """
    with issuing.alone(home):
        open_ones = issuing.read_tokens(home)
        # First of all: who has no token can have nothing else looked at.
        tokens.check(open_ones, asked.secret, now)
        key = authority.key_of_request(asked.request)
        left = tokens.used(open_ones, asked.secret, key, now)
        register = issuing.read(home)
        issuer = Issuer(member, revoked, register, known, wanted)
        node = NodeId(asked.node)
        issuer.check(node, key, asked.address)
        at = issuer.made_at(node, now)
        certificate = founder.issue(asked.request, node, member.secret, at)
        serial = authority.issued(certificate).serial
        register = {**register, node: GivenCertificate(serial, key, now, asked.address)}
        papers.write_tokens(home, left)
        issuing.write(home, register)
        return certificate, register


def admit_beside(
    home: Path, founder: Authority, own: MemberPapers, node: NodeId, address: str, at: datetime
) -> MemberPapers:
    """A member on the same machine, whose key is made here. It is noted on disk before.

    Raises:
        FileDamaged, OSError: as :func:`admit`.
    """
    made = authority.admit(founder, node, own.secret, at)
    with issuing.alone(home):
        serial = authority.issued(made.certificate).serial
        key = authority.key_of(authority.to_der(made.certificate))
        given = GivenCertificate(serial, key, at.timestamp(), address)
        issuing.write(home, {**issuing.read(home), node: given})
    return made


@dataclass(frozen=True, slots=True)
class ShownCertificate:
    """What a member has shown that renews it."""

    issued: Issued
    der: bytes


def renew(
    home: Path,
    asked: Renew,
    shown: ShownCertificate,
    founder: Authority,
    credentials: Credentials,
    now: float,
    reached: str = "",
) -> bytes:
    """The new certificate of a member. It is noted on disk before.

    Args:
        reached: where it is connected now; empty: it is not.
        credentials: of this node. Who is put out is looked up once nobody else changes the
            register: who puts it out looks there after that.

    Raises:
        OperationError, FileDamaged, ProtocolError, OSError: as :func:`admit`.
    """
    with issuing.alone(home):
        key, old = authority.key_of_request(asked.request), authority.key_of(shown.der)
        register, member = issuing.read(home), credentials.member
        old_ones = credentials.renewal
        issuer = Issuer(
            member, credentials.revoked, register,
            wanted=old_ones.wanted, refused=old_ones.refused,
        )  # fmt: skip
        issuer.check_renewal(asked.node, shown.issued, old, key, asked.address)
        at = issuer.made_at(asked.node, now)
        certificate = founder.issue(asked.request, asked.node, member.secret, at)
        serial = authority.issued(certificate).serial
        given = issuer.renewed(asked.node, shown.issued, serial, key, asked.address, reached)
        issuing.write(home, {**register, asked.node: given})
        return certificate


def make_anew(home: Path, node: NodeId, now: float) -> MemberPapers:
    """A new key and certificate of the node that makes members, whose own are damaged. The cluster
    and all that it knows of it stay. ``node``: what it is called.

    Raises:
        DamageError: what that takes is damaged, too; names the file and the cure.
        OperationError, OSError: it can't be; what it had is still there.
    """
    folder = papers.folder_of(home)
    try:
        founder = founder_of(home)
        if founder is None or not authority.fits(founder.certificate, founder.key):
            raise DamageError("they don't belong together")
    except DamageError as error:
        raise DamageError(
            f"{folder / papers.AUTHORITY}, or its key {papers.AUTHORITY_KEY}: damaged ({error});"
            " copy the first from another node, and put the copy of the key there that you have"
            " kept. Without them nobody can join any more: make a new cluster"
        ) from None
    member = papers.read_but_certificate(home, founder.certificate)
    if member.node != node:
        path = folder / MEMBER
        raise DamageError(f"{path}: is of {member.node!r}, and this node is {node!r}: write that")
    revoked, wanted = papers.read_revoked(home), papers.read_renewal(home).wanted
    return renew_own(home, founder, member, revoked, wanted, now)


def renew_own(
    home: Path, founder: Authority, member: MemberPapers, revoked: Revoked, wanted: int, now: float
) -> MemberPapers:
    """A new key and certificate of the node that makes members, which it shows from now on.

    Raises:
        OperationError, OSError: it can't be; what it had is still there.
    """
    request = next_request(home)
    with issuing.alone(home):
        register = issuing.read(home)
        at = Issuer(member, revoked, register, wanted=wanted).made_at(member.node, now)
    return take(home, member, founder.issue(request, member.node, member.secret, at), wanted)


def next_request(home: Path) -> bytes:
    """A request for a certificate of the node's next key, which is made once: who asks again, after
    a fault of any kind, asks with the same.

    Raises:
        OSError: the disk is full or broken.
    """
    papers.settle(home)
    path = papers.folder_of(home) / papers.NEXT_KEY
    with suppress(FileNotFoundError, DamageError):
        return authority.request_of(path.read_bytes())
    key = authority.new_key()
    write_durable(path, key)
    return authority.request_of(key)


def take(home: Path, member: MemberPapers, certificate: bytes, wanted: int) -> MemberPapers:
    """Have a member show the certificate of its next key, if that is one.

    Raises:
        ProtocolError: it isn't; it is of another key, say, or not above the serial ``wanted``.
        OSError: the disk is full or broken; it shows the old one or the new one, whole.
    """
    key = (papers.folder_of(home) / papers.NEXT_KEY).read_bytes()
    try:
        new = replace(member, certificate=authority.alone(certificate), key=key)
        authority.check(new)
    except DamageError as error:
        raise ProtocolError(f"it sends what is no certificate of ours: {error}") from None
    if authority.issued(new.certificate).serial <= wanted:
        raise ProtocolError("it sends a certificate that is old already")
    papers.renew(home, new.certificate)
    return new
