"""The guest's side of joining: whom it trusts, and what it makes of what it hears."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import socket
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from elasticd.client import joining
from elasticd.client.joining import JoinCall
from elasticd.core.words.joining import TO_GUEST, Admitted, NotAdmitted, ShowAuthority
from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.shell.network.transfer import read_frame
from elasticd.shell.network.wall import CURE, Wall
from elasticd.shell.storage import founding, papers
from elasticd.trust import authority
from elasticd.trust.authority import Authority, admit
from elasticd.trust.tokens import Token
from elasticd.types import NodeId
from tests.ports import names_of_a_mac
from tests.unit.shell.control.welcoming import (
    GUEST,
    NODE,
    OTHER,
    PEER,
    PEERS_OTHER,
    REACHED,
    Host,
    ask,
    credentials,
    serving,
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def listening(host: Host, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with host.listening():
            await test()

    asyncio.run(whole())


class Impostor:
    """Talks like a node that makes members, and keeps what it is told."""

    def __init__(self, first: ShowAuthority) -> None:
        self.first = first
        self.heard: list[bytes] = []

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(TO_GUEST.encode(self.first)))
        await writer.drain()
        self.heard.append(await reader.read(1))


@pytest.mark.parametrize("who", ["member", "proof of the issuer", "other cluster", "no member"])
def test_a_guest_says_nothing_to_whom_its_token_does_not_mean(
    host: Host, tmp_path: Path, who: str
) -> None:
    """A member, also one that was put out, has a certificate of the cluster; strangers make one."""
    founder = founding.founder_of(host.home)
    assert founder is not None
    other = Authority.make()
    by = {"other cluster": other, "no member": other}.get(who, founder)
    member = admit(by, NodeId("b"), host.member.secret)
    shown = ShowAuthority(
        other.certificate if who == "other cluster" else founder.certificate,
        {"member": Authority(member.key, b"").vouch(member.certificate)}.get(
            who, by.vouch(host.member.certificate)
        ),
    )
    impostor, home = Impostor(shown), tmp_path / "impostor"
    home.mkdir()
    papers.write(home, member)

    async def test() -> None:
        async with serving(impostor.admit, credentials(home, member), []) as address:
            token = Token(host.member.cluster_id, b"s" * 16, (address,))
            with pytest.raises(OperationError, match="could not join") as caught:
                await ask(token)
            reason = {
                "member": "is not the node that makes members",
                "proof of the issuer": "is not the node that makes members",
                "other cluster": "another cluster answers there",
                "no member": "is no member of the token's cluster",
            }[who]
            assert reason in str(caught.value) and "\n" not in str(caught.value)
        assert impostor.heard == [b""]

    asyncio.run(test())


def test_the_next_address_is_tried(host: Host) -> None:
    async def test() -> None:
        token = host.token(uses=2)
        both = ("127.0.0.1:1", host.address)
        joined = await ask(dataclasses.replace(token, addresses=both))
        assert joined.member.peers == (host.address, PEER), "each node once"
        assert joined.member.more == ("127.0.0.1:1", OTHER, PEERS_OTHER)
        host.admission = dataclasses.replace(
            host.admission, members=lambda: {NODE: OTHER, REACHED: PEER}
        )
        joined = await ask(token, node=NodeId("another"))
        assert joined.member.peers == (host.address, PEER), "what worked"
        assert joined.member.more == (OTHER, PEERS_OTHER)
        with pytest.raises(OperationError, match=r"join: 127\.0\.0\.1:1: Connection refused"):
            await ask(dataclasses.replace(token, addresses=("127.0.0.1:1",)))

    listening(host, test)


@pytest.mark.parametrize("address", ["10.0.0.1:7070", "mac-1.local:7070"])
@pytest.mark.parametrize(
    ("system", "number", "said"),
    [
        ("darwin", errno.EHOSTUNREACH, f"No route to host: {CURE}"),
        ("darwin", errno.ECONNREFUSED, "Connection refused"),
        ("linux", errno.EHOSTUNREACH, "No route to host"),
    ],
)
def test_a_mac_that_lets_nothing_out_says_so_with_the_cure(
    host: Host, monkeypatch: pytest.MonkeyPatch, system: str, number: int, said: str, address: str
) -> None:
    """As in a terminal without the permission for the local network."""
    monkeypatch.setattr(socket, "getaddrinfo", names_of_a_mac("10.0.0.1"))

    def refused(where: tuple[str, int], seconds: float) -> socket.socket:
        raise OSError(number, os.strerror(number))

    pauses = list[float]()
    wall = Wall(system, lambda: [IPv4Network("10.0.0.0/24")], lambda: 0.0)
    token = Token(host.member.cluster_id, b"s" * 16, (address,))
    with pytest.raises(OperationError) as caught:
        call = JoinCall(refused, wall, pauses.append)
        joining.ask(token, authority.new_key(), GUEST, str, call=call)
    assert str(caught.value) == f"could not join: {address}: {said}"
    assert len(pauses) == (2 if CURE in said else 0)


def test_a_mac_that_is_off_is_not_taken_for_a_wall(host: Host) -> None:
    """Who was called in vain a moment ago is refused at once, for a while."""
    ends = [errno.EHOSTUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT]

    def refused(where: tuple[str, int], seconds: float) -> socket.socket:
        number = ends.pop(0)
        raise OSError(number, os.strerror(number))

    wall = Wall("darwin", lambda: [IPv4Network("10.0.0.0/24")], lambda: 0.0)
    token = Token(host.member.cluster_id, b"s" * 16, ("10.0.0.1:7070",))
    with pytest.raises(OperationError) as caught:
        call = JoinCall(refused, wall, lambda seconds: None)
        joining.ask(token, authority.new_key(), GUEST, str, call=call)
    assert str(caught.value).endswith(": no answer in time") and not ends


def test_where_bonjour_says_is_tried_last_and_trusted_no_more_than_others(
    host: Host, tmp_path: Path
) -> None:
    """Only when it is needed. Who answers there has to be whom the token means."""
    gone = "127.0.0.1:1"
    asked: list[str] = []

    def elsewhere(*found: str) -> Callable[[], tuple[str, ...]]:
        def ask_network() -> tuple[str, ...]:
            asked.extend(found)
            return found

        return ask_network

    other = Host(tmp_path / "other")

    async def test() -> None:
        token = host.token(uses=2)
        joined = await ask(token, elsewhere=elsewhere("127.0.0.1:2"))
        assert joined.issuer == host.address and asked == []
        lost = dataclasses.replace(token, addresses=(gone,))
        async with other.listening():
            found = elsewhere(other.address, gone, host.address)
            joined = await ask(lost, node=NodeId("another"), elsewhere=found)
            assert joined.issuer == host.address and joined.member.peers[0] == host.address
            assert not other.joined, "it was told nothing"
            with pytest.raises(OperationError) as caught:
                await ask(lost, elsewhere=elsewhere(other.address, gone))
        said = str(caught.value)
        assert "another cluster answers there" in said and said.count(gone) == 1

    listening(host, test)


def test_an_answer_that_is_too_long_or_never_ends(host: Host) -> None:
    async def long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x10\x00\x00" + b"x" * (1 << 20))
        await writer.drain()

    async def test() -> None:
        async with host.listening(long):
            with pytest.raises(OperationError, match="is longer than"):
                await ask(host.token())

    asyncio.run(test())


def answering(host: Host, answer: Callable[[bytes], Admitted | NotAdmitted]) -> OperationError:
    """What a guest says where the issuer itself answers so to its request."""
    founder = founding.founder_of(host.home)
    assert founder is not None
    proof = founder.vouch(host.member.certificate)
    first = TO_GUEST.encode(ShowAuthority(founder.certificate, proof))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(first))
        frame = await read_frame(reader, 1 << 16)
        writer.write(encode(TO_GUEST.encode(answer(frame["request"]))))
        await writer.drain()

    async def test() -> OperationError:
        async with host.listening(talk):
            with pytest.raises(OperationError) as caught:
                await ask(host.token())
            return caught.value

    return asyncio.run(test())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("node", "is not that of guest"),
        ("key", "is of another key"),
        ("authority", "is of another authority"),
        ("none", "can't be read"),
        ("peers", "is not host:port"),
        ("secret", "is not that of guest"),
    ],
)
def test_papers_that_make_no_member_are_not_taken(host: Host, wrong: str, said: str) -> None:
    founder, secret = founding.founder_of(host.home), host.member.secret
    assert founder is not None

    def answer(request: bytes) -> Admitted:
        by = Authority.make() if wrong == "authority" else founder
        of = authority.request_of(authority.new_key()) if wrong == "key" else request
        node = NodeId("other") if wrong == "node" else GUEST
        made = b"none" if wrong == "none" else by.issue(of, node, secret)
        peers = ("nowhere",) if wrong == "peers" else ()
        return Admitted(made, b"x" * 32 if wrong == "secret" else secret, peers)

    error = str(answering(host, answer))
    assert said in error and "\n" not in error


def test_a_reason_is_shown_on_one_line(host: Host) -> None:
    error = str(answering(host, lambda _: NotAdmitted("no\n\x1b[2J" + "x" * 5000)))
    assert error.isprintable() and len(error) < 500 and "does not let this node in: no" in error


def test_a_key_is_made_once(tmp_path: Path) -> None:
    key = joining.key_of(tmp_path)
    assert joining.key_of(tmp_path) == key
    path = tmp_path / joining.KEY_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(key[:40])
    with pytest.raises(OperationError, match=r"cluster-joining\.key: .* remove it and join again"):
        joining.key_of(tmp_path)
