"""Who is let into a cluster, and what those hear who aren't."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import random
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.joining import ASKED_BYTES, FROM_GUEST, TO_GUEST, Join
from elasticd.errors import OperationError, ProtocolError
from elasticd.ipc.frames import encode
from elasticd.shell.network.transfer import read_frame
from elasticd.shell.storage import founding, issuing, papers
from elasticd.trust import authority, tokens
from elasticd.trust.names import Issued
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.unit.shell.control.welcoming import (
    CLUSTER,
    GUEST,
    NODE,
    NOW,
    OTHER,
    PEER,
    PEERS_OTHER,
    REACHED,
    Heard,
    Host,
    ask,
    asked,
    credentials,
    say,
)
from tests.unit.shell.crashing import Killed, stopping_at

UNKNOWN = "the join token has expired or was not made here: make another one"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def listening(host: Host, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with host.listening():
            await test()

    asyncio.run(whole())


def says_nothing(host: Host, heard: Heard) -> None:
    """Nothing of the cluster or its state, nor of this machine."""
    everything = heard.certificate + heard.data
    hidden = [NODE, CLUSTER, PEER, "10.77", GUEST, str(host.home), host.member.secret.hex()]
    for each in (*(text.encode() for text in hidden), host.member.secret):
        assert each not in everything, each


def is_refused(host: Host, heard: Heard, reason: str = UNKNOWN) -> None:
    says_nothing(host, heard)
    authority_, refused = heard.words
    assert authority_["t"] == "authority"
    assert refused == {"t": "not_admitted", "reason": reason}


def test_a_guest_becomes_a_member(host: Host, tmp_path: Path) -> None:
    async def test() -> None:
        token = host.token()
        joined = await ask(token)
        member = joined.member
        authority.check(member)
        assert (member.node, member.secret) == (GUEST, host.member.secret)
        assert (member.cluster_id, member.peers, member.more) == (
            host.member.cluster_id, (host.address, PEER), (OTHER, PEERS_OTHER),
        )  # fmt: skip
        assert (joined.cluster, joined.partition, joined.issuer) == (
            CLUSTER, "available", host.address,
        )  # fmt: skip
        assert host.joined[GUEST].serial == authority.issued(member.certificate).serial
        assert host.joined[GUEST].address == joined.told
        assert [len(each.keys) for each in host.tokens] == [1]
        assert papers.is_private(host.home)
        # The two ends now take each other for members.
        home = tmp_path / "guest"
        home.mkdir()
        papers.write(home, member)
        shown = credentials(home, papers.read(home))
        for server, client in ((host.credentials, shown), (shown, host.credentials)):
            seen = await shake_hands(server.incoming, client.outgoing)
            assert [each and each.name for each in seen] == [
                host.member.name_of(client.member.node), host.member.name_of(server.member.node)
            ]  # fmt: skip

    listening(host, test)


async def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[Issued | None, Issued | None]:
    """Whose certificates the server and the client see."""
    ends: asyncio.Queue[ssl.SSLObject] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        ends.put_nowait(writer.get_extra_info("ssl_object"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as listener:
        host, port = listener.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port, ssl=client, server_hostname="")
        writer.write(b"x")
        far = await ends.get()
        found = _issued(far), _issued(writer.get_extra_info("ssl_object"))
        writer.close()
    return found


def _issued(end: ssl.SSLObject) -> Issued | None:
    der = end.getpeercert(binary_form=True)
    return authority.issued(ssl.DER_cert_to_PEM_cert(der).encode()) if der else None


def test_it_is_on_disk_before_the_guest_hears(host: Host) -> None:
    """A kill at any change of a file: who asks again with the same key is let in, and the token
    has one use less."""
    token, key = host.token(), authority.new_key()
    founder = founding.founder_of(host.home)
    assert founder is not None
    word = Join(token.secret, GUEST, authority.request_of(key), PEER)
    for number in itertools.count(1):
        issuing.write(host.home, {})
        papers.write_tokens(host.home, (tokens.opened(token.secret, NOW + 60, 1),))
        answered = None
        with stopping_at(number, Killed()) as watch, contextlib.suppress(Killed):
            answered, _ = founding.admit(host.home, word, founder, host.member, Revoked(), (), NOW)
        if answered is not None:
            assert host.joined[GUEST].serial == authority.issued(answered).serial
            assert host.tokens[0].keys == (host.joined[GUEST].key,)
            assert watch.seen < number
            break
        again, _ = founding.admit(host.home, word, founder, host.member, Revoked(), (), NOW)
        assert host.joined[GUEST].serial == authority.issued(again).serial
        assert len(host.tokens[0].keys) == 1
    assert number > 4


@pytest.mark.parametrize("secret", [b"", b"x" * 16, b"s" * 15, b"s" * 17, b"x" * 4000])
def test_who_has_no_token_hears_just_that(host: Host, secret: bytes) -> None:
    async def test() -> None:
        token = dataclasses.replace(host.token(), secret=secret)
        for data in (
            asked(token),
            asked(token, node=NODE),  # not that this is taken
            asked(token, node="../" * 20, address="?", request=b"no request"),
        ):
            is_refused(host, await say(host.address, data))
        assert host.joined == {} and not any(each.keys for each in host.tokens)

    listening(host, test)


def test_a_token_that_ended_is_like_one_that_never_was(host: Host) -> None:
    async def test() -> None:
        token, key = host.token(seconds=60.0, uses=2), authority.new_key()
        await ask(token, key)
        host.clock = NOW + 60.0
        is_refused(host, await say(host.address, asked(token)))
        is_refused(host, await say(host.address, asked(token, key)))

    listening(host, test)


def test_a_spent_token_lets_nobody_else_in(host: Host) -> None:
    async def test() -> None:
        token, key = host.token(), authority.new_key()
        await ask(token, key)
        spent = "the join token has been used: make another one"
        for node in ("other", GUEST):
            heard = await say(host.address, asked(token, node=node))
            is_refused(host, heard, spent)
        with pytest.raises(OperationError, match="has been used"):
            await ask(token, node=NodeId("other"))
        # Whoever replays what was said gets a certificate for a key that it does not have.
        heard = await say(host.address, asked(token, key))
        replayed = TO_GUEST.decode(heard.words[1])
        assert authority.fits(getattr(replayed, "certificate"), key)  # noqa: B009

    listening(host, test)


def test_a_join_can_be_repeated_by_the_same_key(host: Host) -> None:
    async def test() -> None:
        token, key = host.token(), authority.new_key()
        first = await ask(token, key)
        again = await ask(token, key)
        assert again.member.node == first.member.node
        serials = [authority.issued(each.member.certificate).serial for each in (first, again)]
        assert serials[0] < serials[1] == host.joined[GUEST].serial
        assert [len(each.keys) for each in host.tokens] == [1]

    listening(host, test)


def test_a_guest_that_leaves_before_its_answer_can_come_again(host: Host) -> None:
    async def test() -> None:
        token, key = host.token(), authority.new_key()
        for _ in range(5):
            await say(host.address, asked(token, key)[:-1])
            await asyncio.wait_for(_left(host.address, asked(token, key)), 20)
        assert (await ask(token, key)).member.node == GUEST
        assert [len(each.keys) for each in host.tokens] == [1]

    listening(host, test)


async def _left(address: str, data: bytes) -> None:
    """Say it and hang up at once."""
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"J")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    await writer.start_tls(context)
    writer.write(data)
    await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize("node", [NODE, "known", "joined"])
def test_an_id_that_another_node_has_is_refused(host: Host, node: str) -> None:
    async def test() -> None:
        host.known = (NodeId("known"),)
        await ask(host.token(letter=b"a"), node=NodeId("joined"))
        token, key = host.token(), authority.new_key()
        with pytest.raises(OperationError, match=f"another node of the cluster is called {node}"):
            await ask(token, key, NodeId(node))
        # That has cost nothing.
        assert (await ask(token, key)).member.node == GUEST

    listening(host, test)


def test_one_that_was_put_out_stays_out_and_its_id_is_free(host: Host) -> None:
    async def test() -> None:
        token, key = host.token(), authority.new_key()
        await ask(token, key)
        name, serial = host.member.name_of(GUEST), host.joined[GUEST].serial
        host.credentials.revoked = Revoked({name: serial})
        for again in (token, host.token(letter=b"n")):
            with pytest.raises(OperationError, match="was put out of the cluster"):
                await ask(again, key)
        new = await ask(host.token(letter=b"n"))
        assert not host.credentials.revoked.holds(authority.issued(new.member.certificate))

    listening(host, test)


@pytest.mark.parametrize("node", ["", "a b", "a/b", "a\n", "x" * 64, "é"])
def test_ids_are_checked_like_the_settings(host: Host, node: str) -> None:
    async def test() -> None:
        token = host.token()
        with pytest.raises(OperationError, match="a node id must be 1 to 63 letters"):
            await ask(token, node=NodeId(node))
        assert host.joined == {} and not any(each.keys for each in host.tokens)

    listening(host, test)


def test_two_at_the_same_moment_both_get_in(host: Host) -> None:
    async def test() -> None:
        names = [NodeId(f"mac-{n}") for n in range(6)]
        one, several = host.token(letter=b"o"), host.token(uses=5)
        wanted = [ask(several, node=node) for node in names[:5]]
        wanted += [ask(one, node=NodeId("last")) for _ in range(3)]
        found = await asyncio.gather(*wanted, return_exceptions=True)
        refused = [each for each in found[5:] if isinstance(each, OperationError)]
        assert not any(isinstance(each, BaseException) for each in found[:5])
        assert len(refused) == 2  # the last ones want one token and one name
        assert set(host.joined) == {*names[:5], "last"}
        assert sorted(len(each.keys) for each in host.tokens) == [1, 5]

    listening(host, test)


def test_later_guests_are_told_of_earlier_ones(host: Host) -> None:
    async def test() -> None:
        token = host.token(uses=4)
        await ask(token, node=NodeId("a"), listen="10.77.0.2:1")
        await ask(token, node=NodeId("b"), listen="10.77.0.3:1")
        host.credentials.revoked = Revoked(
            {host.member.name_of(NodeId("a")): host.joined[NodeId("a")].serial}
        )
        await ask(token, node=REACHED, listen="10.77.0.5:1")
        last = await ask(token, node=NodeId("c"), listen="10.77.0.4:1")
        assert last.member.peers == (host.address, PEER, "10.77.0.3:1")

    listening(host, test)


def test_frames_that_are_too_long_or_none(host: Host) -> None:
    async def test() -> None:
        token = host.token()
        long = encode(FROM_GUEST.encode(Join(token.secret, GUEST, b"x" * ASKED_BYTES, PEER)))
        claimed = b"\x7f\xff\xff\xff" + b"x" * 100
        word = {"t": "join", "secret": "text", "node": GUEST, "request": b"", "address": ""}
        for data in (long, claimed, b"", b"GET / HTTP/1.1\r\n\r\n", encode(word), encode({})):
            heard = await say(host.address, data)
            says_nothing(host, heard)
            assert [each["t"] for each in heard.words] in ([], ["authority"])
        assert all(isinstance(each, ProtocolError | OSError) for each in host.errors)
        # A good token with a request that is none: that is said, and costs nothing.
        for request in (b"", b"x" * 5000, authority.new_key()):
            heard = await say(host.address, asked(token, request=request))
            assert heard.words[1]["t"] == "not_admitted" and "request" in str(heard.words[1])
        await ask(token)

    listening(host, test)


def test_a_thousand_random_frames_change_nothing(host: Host) -> None:
    async def test() -> None:
        token, dice = host.token(), random.Random(7)
        good = asked(dataclasses.replace(token, secret=b"x" * 16))
        before = _files(host.home)

        def draw() -> bytes:
            changed = bytearray(good)
            for _ in range(dice.randint(1, 4)):
                changed[dice.randrange(len(changed))] = dice.randrange(256)
            data = dice.randbytes(dice.randint(0, 300))
            framed = len(data).to_bytes(4, "big") + data
            return dice.choice([data, framed, bytes(changed), good[: dice.randrange(len(good))]])

        async def some(count: int) -> None:
            for _ in range(count):
                heard = await say(host.address, draw())
                says_nothing(host, heard)
                assert {each["t"] for each in heard.words[1:]} <= {"not_admitted"}

        await asyncio.gather(*(some(250) for _ in range(4)))
        assert _files(host.home) == before
        await ask(token)

    listening(host, test)


def _files(home: Path) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes()
        for each in papers.folder_of(home).iterdir()
        if each.name != issuing.LOCK
    }


def test_a_node_that_makes_no_members(host: Host) -> None:
    async def test() -> None:
        token = host.token()
        key = papers.folder_of(host.home) / papers.AUTHORITY_KEY
        key.write_bytes(b"damaged")
        assert [each["t"] for each in (await say(host.address, b"")).words] in (
            [],
            ["not_admitted"],
        )
        key.unlink()
        heard = await say(host.address, asked(token))
        says_nothing(host, heard)
        (only,) = heard.words
        assert only["t"] == "not_admitted"
        with pytest.raises(OperationError, match="this node makes no members"):
            await ask(token)

    listening(host, test)


@pytest.mark.parametrize("name", [papers.TOKENS, issuing.ISSUED])
def test_damaged_files_are_nobody_elses_concern(host: Host, name: str) -> None:
    async def test() -> None:
        token = host.token()
        (papers.folder_of(host.home) / name).write_bytes(b"{damaged")
        heard = await say(host.address, asked(token))
        is_refused(host, heard, "the node that makes members can't do it now: its log says why")

    listening(host, test)


def test_a_full_disk_lets_nobody_in_until_it_is_well(host: Host) -> None:
    async def test() -> None:
        token, key = host.token(), authority.new_key()
        stuck = papers.folder_of(host.home) / "issued.json.partial"
        stuck.mkdir()  # so the register can't be written
        with pytest.raises(OperationError, match="can't do it now"):
            await ask(token, key)
        assert host.joined == {}
        stuck.rmdir()
        await ask(token, key)
        assert [len(each.keys) for each in host.tokens] == [1]

    listening(host, test)


def test_a_certificate_shows_strangers_neither_cluster_nor_node(host: Host) -> None:
    """Both to guests and to those who pose as members: TLS shows it before it knows who that is."""

    async def test() -> None:
        heard = await say(host.address, b"")
        says_nothing(host, heard)
        for client in (None, host.credentials.outgoing):
            stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
            _, seen = await shake_hands(
                host.credentials.guests if client is None else host.credentials.incoming,
                client or stranger,
            )
            assert seen and seen.name == host.member.name_of(NODE) and len(seen.name) == 32
        text = heard.certificate.lower()
        assert b"secret" not in text and host.member.cluster_id.encode() not in text

    listening(host, test)


def test_what_a_guest_is_asked_is_read_whole(host: Host) -> None:
    """The callback reads one frame, and leaves what follows."""

    async def test() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(asked(host.token()) + b"more")
        reader.feed_eof()
        assert FROM_GUEST.knows(await read_frame(reader, ASKED_BYTES))
        assert await reader.read() == b"more"

    asyncio.run(test())
