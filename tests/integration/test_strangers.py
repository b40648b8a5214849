"""Who is no member gets nowhere at the port of a real daemon, and hears nothing of the cluster."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from elasticd.core.words.connections import Errand
from elasticd.core.words.joining import FROM_GUEST, Join
from elasticd.core.words.requests.nodes import PutOutNode
from elasticd.ipc.frames import encode
from elasticd.settings.config import load as load_config
from elasticd.settings.config import split_address
from elasticd.shell.storage import founding, issuing, papers
from elasticd.trust import tokens
from elasticd.trust.authority import Authority, new_key, request_of
from elasticd.trust.member import MemberPapers
from elasticd.types import NodeId
from tests.integration.cluster import Cluster
from tests.members import credentials_of

pytestmark = pytest.mark.process

SECONDS = 10.0
HELLO = {"t": "hello", "version": 0, "newest": 99, "boot": "b", "address": "127.0.0.1:9"}


@dataclass
class Target:
    """A daemon that is attacked, and what nobody may hear of it."""

    cluster: Cluster
    home: Path
    other: Path

    @property
    def address(self) -> tuple[str, int]:
        return split_address(load_config(self.home).listen)

    @property
    def founder(self) -> Authority:
        found = founding.founder_of(self.cluster.home / "node-0")
        assert found is not None
        return found

    @property
    def secret(self) -> bytes:
        return papers.read(self.home).secret

    def secrets(self) -> list[bytes]:
        """What strangers must not be told, as it would be on the wire."""
        settings = load_config(self.home)
        member = papers.read(self.home)
        return [
            *(node.encode() for node in self.cluster.nodes),
            settings.listen.encode(),
            member.secret,
            member.secret.hex().encode(),
            b"local",
        ]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Cluster(tmp_path_factory.mktemp("strangers"), 2) as cluster:
        homes = [cluster.home / node for node in cluster.nodes]
        yield Target(cluster, homes[0], homes[1])


def heard(
    target: Target, errand: bytes, context: ssl.SSLContext | None, *said: bytes
) -> tuple[bytes, bytes]:
    """What comes back, decrypted, and the certificate that was shown."""
    data, shown = b"", b""
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(target.address, SECONDS))
        connection.settimeout(SECONDS)
        with contextlib.suppress(OSError):
            connection.sendall(errand)
            if context is not None:
                sealed = stack.enter_context(context.wrap_socket(connection))
                connection, shown = sealed, sealed.getpeercert(binary_form=True) or b""
            for each in said:
                connection.sendall(each)
            while more := connection.recv(1 << 16):
                data += more
    return data, shown


def nobody(most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """Takes any server, and shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, most
    return context


def showing(member: MemberPapers) -> ssl.SSLContext:
    """Takes any server, and shows a member's certificate."""
    context = credentials_of(member).outgoing
    context.verify_mode = ssl.CERT_NONE
    return context


def of(target: Target, founder: Authority, node: str, years: float = 1.0) -> MemberPapers:
    """A member that ``founder`` has made, with the cluster's own secret."""
    key = new_key()
    certificate = founder.issue(request_of(key), NodeId(node), target.secret, years=years)
    return MemberPapers(NodeId(node), target.secret, founder.certificate, certificate, key)


def no_certificate(target: Target) -> ssl.SSLContext | None:
    return nobody()


def downgraded(target: Target) -> ssl.SSLContext | None:
    return nobody(ssl.TLSVersion.TLSv1_2)


def in_the_open(target: Target) -> ssl.SSLContext | None:
    return None


def of_another_authority(target: Target) -> ssl.SSLContext | None:
    return showing(of(target, Authority.make(), "node-1"))


def expired(target: Target) -> ssl.SSLContext | None:
    return showing(of(target, target.founder, "node-1", years=-1))


def made_by_a_member(target: Target) -> ssl.SSLContext | None:
    """A member's own key signs for another one."""
    member = papers.read(target.other)
    return showing(of(target, Authority(member.key, member.certificate), "node-0"))


STRANGERS: list[Callable[[Target], ssl.SSLContext | None]] = [
    no_certificate, downgraded, in_the_open, of_another_authority, expired, made_by_a_member,
]  # fmt: skip
FETCHES = [{"t": "fetch", "what": what} for what in ("blank", "stored_jobs", "archive_list", "log")]


@pytest.mark.parametrize("errand", [Errand.PEER, Errand.FETCH])
@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_hears_nothing(
    target: Target, stranger: Callable[[Target], ssl.SSLContext | None], errand: Errand
) -> None:
    words = [{**HELLO, "node": "node-1"}] if errand is Errand.PEER else FETCHES
    for word in words:
        data, shown = heard(target, errand.value, stranger(target), encode(word))
        assert data == b""
        assert not any(secret in shown for secret in target.secrets())


def test_a_member_is_heard_so_that_the_tests_beside_can_fail(target: Target) -> None:
    mallory = showing(of(target, target.founder, "mallory"))
    data, _ = heard(target, b"P", mallory, encode({**HELLO, "node": "mallory"}))
    assert b"node-0" in data
    data, _ = heard(target, b"F", mallory, encode({"t": "fetch", "what": "blank"}))
    assert len(data) > 1000


def test_a_member_is_nobody_else_and_nobody_once_it_was_put_out(target: Target) -> None:
    member = of(target, target.founder, "mallory")
    began, members = time.time(), target.cluster.view()["members"]
    heard(target, b"P", showing(member), encode({**HELLO, "node": "node-1"}))
    nobody_is_lost(target, began, members)
    joined = target.cluster.client
    (target.home / "cluster" / "issued.json").write_text("{}")
    with pytest.raises(Exception, match="no node mallory"):
        joined.change(PutOutNode(NodeId("mallory")))
    issued = '{"mallory": {"serial": "1", "key": "00", "at_unix": 1, "address": "h:1"}}'
    (target.home / "cluster" / "issued.json").write_text(issued)
    target.cluster.client.change(PutOutNode(NodeId("mallory")))
    for errand, word in ((b"P", {**HELLO, "node": "mallory"}), (b"F", FETCHES[0])):
        assert heard(target, errand, showing(member), encode(word))[0] == b""


def nobody_is_lost(target: Target, began: float, members: list[str]) -> None:
    """A daemon that is kept busy may be missed for a moment."""
    lost = [e for e in target.cluster.kinds(None, "node_lost") if e["time"] > began]
    assert not [e for e in lost if "silent for" not in e["reason"]], lost
    target.cluster.wait_for("both", lambda: target.cluster.view()["members"] == members)


def test_a_guest_without_a_token_hears_no_name(target: Target) -> None:
    asked = Join(bytes(16), NodeId("node-1"), request_of(new_key()), "127.0.0.1:9")
    word = encode(FROM_GUEST.encode(asked))
    for said in ([], [word], [word[:20]], [os.urandom(400)], [encode({**HELLO, "node": "x"})]):
        data, shown = heard(target, b"J", nobody(), *said)
        assert not any(secret in data + shown for secret in target.secrets())
        assert b"not_admitted" in data or said != [word]


@pytest.mark.parametrize("which", ["expired", "spent", "of another cluster"])
def test_a_token_that_is_not_open_lets_nobody_in(target: Target, which: str) -> None:
    """Who shows one hears that, and no name; nobody becomes a member."""
    secret, now = os.urandom(tokens.SECRET_BYTES), time.time()
    ends = now - 1 if which == "expired" else now + 600
    if which != "of another cluster":
        issuing.open_token(target.home, tokens.opened(secret, ends, 1), min(now, ends - 1))

    def ask(node: str, key: bytes) -> bytes:
        asked = Join(secret, NodeId(node), request_of(key), "127.0.0.1:9")
        return heard(target, b"J", nobody(), encode(FROM_GUEST.encode(asked)))[0]

    if which == "spent":
        assert b"certificate" in ask("guest", new_key())
    before = issuing.read(target.home)
    data = ask("thief", new_key())
    assert b"not_admitted" in data and issuing.read(target.home) == before
    assert not any(each in data for each in target.secrets())


# Python closes a socket late whose other end hung up before the handshake (ssl.SSLSocket._create).
@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_floods_of_strangers_have_no_effect(target: Target) -> None:
    """Frames, garbage and handshakes; the daemon neither grows nor loses its peer."""
    dice, began = random.Random(17), time.time()
    pid = target.cluster.processes("node-0")[0].pid
    daemon, view = psutil.Process(pid), target.cluster.view()
    contexts = [None, None, nobody(), of_another_authority(target)]

    def flood(count: int) -> None:
        for _ in range(count):
            errand = dice.choice((b"P", b"F", b"J", b"\0", b"\x16\x03\x01"))
            junk = dice.choice((dice.randbytes(dice.randint(0, 4000)), encode({**HELLO})))
            with contextlib.ExitStack() as stack:
                opened = stack.enter_context(socket.create_connection(target.address, SECONDS))
                opened.settimeout(SECONDS)
                with contextlib.suppress(OSError):
                    opened.sendall(errand)
                    if (context := dice.choice(contexts)) is not None:
                        opened = stack.enter_context(context.wrap_socket(opened))
                    opened.sendall(junk)

    flood(300)
    before = daemon.memory_info().rss
    flood(1500)
    assert daemon.memory_info().rss - before < 16 << 20
    nobody_is_lost(target, began, view["members"])
    assert target.cluster.processes("node-0")[0].pid == pid
