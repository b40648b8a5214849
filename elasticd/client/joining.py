"""Becoming a member with a join token: the guest's side of words/joining.py.

Whom it talks to is known before it says anything: the token pins the authority's certificate, and
only the owner of that makes members.
"""

from __future__ import annotations

import errno
import itertools
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tenacity

from elasticd.core.words.connections import Errand
from elasticd.core.words.joining import (
    ANSWERED_BYTES,
    FROM_GUEST,
    TO_GUEST,
    Admitted,
    Join,
    NotAdmitted,
    ShowAuthority,
)
from elasticd.errors import DamageError, ElasticdError, OperationError, ProtocolError
from elasticd.ipc.frames import Decoder, encode
from elasticd.settings.config import split_address
from elasticd.settings.rules import one_line
from elasticd.shell.network import lookups
from elasticd.shell.network.wall import CURE, Wall
from elasticd.shell.storage import papers
from elasticd.shell.storage.durable import write_durable
from elasticd.trust import authority
from elasticd.trust.member import MemberPapers
from elasticd.trust.names import cluster_id
from elasticd.trust.tokens import Token
from elasticd.types import NodeId

KEY_NAME = "cluster-joining.key"
"""In the home, until this node has been let in: who asks again is the same then."""
CONNECT_SECONDS = 3.0
TALK_SECONDS = 10.0
MOST_PEERS = 1024
_READ_BYTES = 16 * 1024
Connect = Callable[[tuple[str, int], float], socket.socket]
_LONGEST_REASON = 300
_TRIES, _AGAIN_SECONDS = 3, 1.0
"""Of an address to which this machine itself seems to let nothing out."""


@dataclass(frozen=True, slots=True)
class JoinCall:
    """How the cluster is called; what it needs of the system."""

    connect: Connect = socket.create_connection
    wall: Wall = field(default_factory=Wall)
    pause: Callable[[float], None] = time.sleep

    def called(self, address: str) -> socket.socket:
        """A connection; the caller closes it.

        Raises:
            OSError: there is none, with the cure where this machine itself lets nothing out.
        """
        errors: list[OSError] = []
        for host, port in lookups.looked_up(address):
            try:
                # A host that is off is refused so for a while, too, after it was called in vain.
                for attempt in tenacity.Retrying(
                    stop=tenacity.stop_after_attempt(_TRIES),
                    wait=tenacity.wait_fixed(_AGAIN_SECONDS),
                    retry=tenacity.retry_if_exception_type(_WalledIn),
                    sleep=self.pause,
                    reraise=True,
                ):
                    with attempt:
                        return self._once(host, port)
            except OSError as error:
                errors.append(error)
        raise errors[0]

    def _once(self, host: str, port: int) -> socket.socket:
        began = self.wall.now()
        try:
            return self.connect((host, port), CONNECT_SECONDS)
        except OSError as error:
            own = self.wall.is_own(f"{host}:{port}", self.wall.now() - began)
            if own and error.errno == errno.EHOSTUNREACH:
                raise _WalledIn(error.errno, f"{error.strerror}: {CURE}") from None
            raise


class _WalledIn(OSError):
    """This machine itself seems to let nothing out to there."""


class WrongEnd(ElasticdError):
    """Whoever answers there isn't whom the token means."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What has become of it.

    Attributes:
        issuer: the address that took the token.
        told: where the others look for this node.
        cluster: the cluster's name, on which all agree, as on ``partition``.
    """

    member: MemberPapers
    issuer: str
    told: str
    cluster: str
    partition: str


def key_of(home: Path, *, again: bool = False) -> bytes:
    """The key of this node, made once.

    Args:
        again: it is a member whose papers are damaged. If its key is sound it is used again: by it
            the cluster knows that this is no other node.

    Raises:
        OperationError: the file is damaged.
        OSError: the disk is full or broken.
    """
    for old in papers.read_keys(home) if again else ():
        with suppress(DamageError):
            authority.request_of(old)
            return old
    path = home / KEY_NAME
    try:
        key = path.read_bytes()
        authority.request_of(key)
    except FileNotFoundError:
        key = authority.new_key()
        write_durable(path, key)
    except DamageError as error:
        raise OperationError(f"{path}: {error}; remove it and join again") from None
    return key


def ask(
    token: Token,
    key: bytes,
    node: NodeId,
    found_at: Callable[[str], str],
    elsewhere: Callable[[], Iterable[str]] = tuple,
    call: JoinCall | None = None,
) -> Joined:
    """Have the owner of ``key`` become the member ``node``.

    Args:
        found_at: where others are to look for it, of the address that it has towards the cluster.
        elsewhere: other addresses, asked for when none of the token's answers as it should. Who is
            there has to be whom the token means, as everywhere.

    Raises:
        OperationError: it isn't let in, or none of the addresses answers as it should.
    """
    call, failures = call or JoinCall(), dict[str, str]()
    for address in itertools.chain(token.addresses, _called(elsewhere)):
        if address in failures:
            continue
        try:
            return _ask_at(address, token, key, node, found_at, call)
        except (OSError, WrongEnd, ProtocolError) as error:
            failures[address] = _reason(error)
    told = "; ".join(f"{address}: {why}" for address, why in failures.items())
    raise OperationError(f"could not join: {told}")


def _called(elsewhere: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Not before the first is wanted."""
    yield from elsewhere()


def _ask_at(
    address: str,
    token: Token,
    key: bytes,
    node: NodeId,
    found_at: Callable[[str], str],
    call: JoinCall,
) -> Joined:
    with _connected(address, call) as line:
        shown = line.receive()
        if isinstance(shown, NotAdmitted):
            raise WrongEnd(_said(shown.reason))
        if not isinstance(shown, ShowAuthority):
            raise ProtocolError("it shows no authority")
        pem = _pinned(shown, token, line.certificate)
        own = found_at(line.own_host)
        asked = Join(token.secret, node, authority.request_of(key), own)
        line.send(asked)
        answer = line.receive()
    if isinstance(answer, NotAdmitted):
        raise OperationError(f"{address} does not let this node in: {_said(answer.reason)}")
    if not isinstance(answer, Admitted):
        raise ProtocolError("it answers nothing")
    issuer_at = (address, *token.addresses)
    member = _member(answer, pem, key, node, issuer_at)
    return Joined(member, address, own, answer.cluster, answer.partition)


def _pinned(shown: ShowAuthority, token: Token, certificate: bytes) -> bytes:
    """The authority's certificate, and nothing else that was in the text.

    Raises:
        WrongEnd: it isn't the token's, or the other end doesn't make members.
    """
    try:
        pem = authority.alone(shown.certificate)
    except DamageError as error:
        raise WrongEnd(str(error)) from None
    if cluster_id(pem) != token.pin:
        raise WrongEnd("another cluster answers there than the token's")
    if not authority.was_issued_by(pem, certificate):
        raise WrongEnd("who answers there is no member of the token's cluster")
    if not authority.is_vouched_for(pem, certificate, shown.proof):
        raise WrongEnd("who answers there is not the node that makes members")
    return pem


def _member(
    answer: Admitted, pem: bytes, key: bytes, node: NodeId, issuer_at: Sequence[str]
) -> MemberPapers:
    """``issuer_at``: where the issuer is, first the address that has just worked.

    Raises:
        ProtocolError: what was sent is no member's.
    """
    try:
        certificate = authority.alone(answer.certificate)
        others = (each for each in answer.peers[1:] if each not in issuer_at)
        peers = tuple(dict.fromkeys((issuer_at[0], *others)))[:MOST_PEERS]
        known = dict.fromkeys((*issuer_at, *answer.peers[:1], *answer.more))
        more = tuple(each for each in known if each not in peers)[:MOST_PEERS]
        for each in (*peers, *more):
            split_address(each)
        member = MemberPapers(node, answer.secret, pem, certificate, key, peers, more)
        authority.check(member)
    except (DamageError, ValueError) as error:
        raise ProtocolError(f"it sends what makes no member: {error}") from None
    return member


class _Conversation:
    """A connection, after the handshake."""

    def __init__(self, connection: ssl.SSLSocket, until: float) -> None:
        self._connection, self._until = connection, until
        self._decoder = Decoder(ANSWERED_BYTES)
        self._frames: list[dict[str, Any]] = []
        self.own_host: str = connection.getsockname()[0]
        self.certificate = connection.getpeercert(binary_form=True) or b""

    def send(self, word: Join) -> None:
        self._connection.settimeout(self._left())
        self._connection.sendall(encode(FROM_GUEST.encode(word)))

    def receive(self) -> ShowAuthority | Admitted | NotAdmitted:
        while not self._frames:
            self._connection.settimeout(self._left())
            data = self._connection.recv(_READ_BYTES)
            if not data:
                raise ProtocolError("it hung up")
            self._frames += self._decoder.feed(data)
            if self._decoder.pending_bytes > ANSWERED_BYTES + _READ_BYTES:
                raise ProtocolError("it sends too much")
        return TO_GUEST.decode(self._frames.pop(0))

    def _left(self) -> float:
        if (left := self._until - time.monotonic()) <= 0:
            raise TimeoutError("no answer came in time")
        return left


@contextmanager
def _connected(address: str, call: JoinCall) -> Iterator[_Conversation]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Who that is we find out by the certificate of the authority, which comes next.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    until = time.monotonic() + TALK_SECONDS
    with call.called(address) as plain:
        plain.sendall(Errand.JOIN.value)
        plain.settimeout(CONNECT_SECONDS)
        with context.wrap_socket(plain) as connection:
            yield _Conversation(connection, until)


def _said(reason: str) -> str:
    return one_line(reason[:_LONGEST_REASON])


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "who answers there speaks no TLS 1.3"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return _said(str(error))
