"""What is done with a cluster's authority: a home gets one, and others become members by it.

It loads ``cryptography``, so a daemon that is a member already loads it when somebody joins.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path

from elasticd.core.words.joining import Join
from elasticd.errors import DamageError
from elasticd.shell.storage import issuing, papers
from elasticd.trust import authority, tokens
from elasticd.trust.authority import Authority
from elasticd.trust.issuing import GivenCertificate, Issuer, Register
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import SECRET_BYTES
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
) -> tuple[bytes, Register]:
    """The certificate of who asks, and all who have joined here. It is noted on disk before.

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
        issuer = Issuer(member, revoked, register, known)
        node = NodeId(asked.node)
        issuer.check(node, key, asked.address)
        at = issuer.made_at(node, now)
        certificate = founder.issue(asked.request, node, member.secret, at)
        serial = authority.issued(certificate).serial
        register = {**register, node: GivenCertificate(serial, key, now, asked.address)}
        papers.write_tokens(home, left)
        issuing.write(home, register)
        return certificate, register
