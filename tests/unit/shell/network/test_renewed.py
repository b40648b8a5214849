"""What old certificates are good for, and how connections get new ones without being cut."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest

from elasticd.core.words.connections import CONNECTION, Errand, MustRenew
from elasticd.core.words.joining import FROM_RENEWER, Renew
from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly.membership import Others, TrustedMembers
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.control.renewing import RenewalDesk, ask
from elasticd.shell.network import dialling, transfer
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import founding, issuing, papers
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.trust import authority
from elasticd.trust.authority import issued
from elasticd.trust.issuing import GivenCertificate
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.members import authority_of, credentials_of, member
from tests.unit.shell.network.daemons import Daemon, Run, met, running, serving, until


def show_another(daemon: Daemon, home: Path) -> None:
    """It has renewed its certificate."""
    new = member(daemon.peers.me.node)
    papers.write(home, new)
    daemon.credentials.show(new, *papers.shown(home))


def test_an_old_certificate_is_told_to_be_renewed_and_gets_nothing_else(run: Run) -> None:
    async def main() -> None:
        old, a = member("b"), Daemon("a")
        serial = issued(old.certificate).serial
        a.credentials.renewal = Renewal(serial, serial)
        async with running(a):
            reader, writer = await transfer.connect(a.address, credentials_of(old))
            writer.write(encode({**a.peers.me.frame(), "node": "b"}))
            told = CONNECTION.decode(await transfer.read_frame(reader, 1 << 16))
            assert told == MustRenew(format(serial, "x")) and await reader.read() == b""
            await transfer.close(writer)
            sink = nameless_file()
            with pytest.raises(OperationError, match="closed the connection"):
                await transfer.fetch(a.address, {"what": "state"}, sink, credentials_of(old))
            os.close(sink)
            assert a.seen == []
            assert a.peers.complain.last_reason.endswith("it has to renew it")

    run(main())


def test_one_that_is_to_be_renewed_is_taken_until_old_ones_are_refused(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        serials = [each.credentials.own.serial for each in (a, b)]
        a.credentials.renewal = Renewal(max(serials))
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")

    run(main())


def test_who_is_told_to_renew_hears_it_once_and_connects_with_a_new_one(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        b = Daemon("b")
        serial = b.credentials.own.serial
        await asyncio.sleep(0.003)  # serials count milliseconds
        a = Daemon("a")
        back = Daemon("b", a.address, own=b.address)
        back.credentials.show(b.credentials.member, *_files(tmp_path / "old", b))
        a.credentials.renewal = Renewal(serial, serial)
        async with running(a, back):
            await until(lambda: back.told_to_renew)
            assert back.told_to_renew[0] == Renewal(serial) and a.seen == []
            (tmp_path / "new").mkdir()
            show_another(back, tmp_path / "new")
            back.peers.dial_now()
            await a.until_seen("up", "b", "boot-1")

    run(main())


@pytest.mark.parametrize("word", ["1", "", "f" * 40, "no word"])
def test_who_says_for_ever_that_it_must_be_renewed_is_dialled_with_growing_pauses(
    run: Run, tmp_path: Path, word: str
) -> None:
    """Our certificate is newer than that, or its own is not."""

    async def main() -> None:
        dialled: list[float] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialled.append(asyncio.get_running_loop().time())
            await transfer.read_frame(reader, 1 << 16)
            writer.write(encode({"t": "must_renew", "wanted": word}))
            await transfer.close(writer)

        async with serving("b", answer) as address:
            a = Daemon("a", address)
            a.takes_told = membership_of(a, tmp_path).must_renew
            async with running(a):
                await until(lambda: len(dialled) > 4)
                assert dialled[4] - dialled[0] > 0.7  # 0.05, 0.1, 0.2 and 0.4
                assert a.credentials.renewal == Renewal()

    run(main())


def test_one_that_has_renewed_meanwhile_dials_again_at_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        dialled: list[int] = []
        refused: list[tuple[int, int]] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            refused.append((a.peers.refusals.hellos, a.peers.refusals.bad_frames))
            dialled.append(serial := a.credentials.own.serial)
            await transfer.read_frame(reader, 1 << 16)
            if len(dialled) == 1:
                show_another(a, tmp_path)
                writer.write(encode({"t": "must_renew", "wanted": format(serial, "x")}))
            await transfer.close(writer)

        a = Daemon("a")
        await asyncio.sleep(0.003)  # serials count milliseconds
        async with serving("b", answer) as address, running(a):
            a.peers.dial([address])
            await until(lambda: len(dialled) >= 2)
            assert a.told_to_renew == [Renewal(dialled[0])]
            assert refused[:2] == [(0, 0), (0, 0)]  # the second one closes without a hello

    run(main())


def membership_of(daemon: Daemon, home: Path) -> TrustedMembers:
    class Talking:
        peers = daemon.peers

    talk = cast(Talk, Talking())
    others = Others(lambda: talk, tuple, tuple, tuple, lambda error: None, lambda _: None)
    return TrustedMembers(home, NodeConfig(node_id="a"), daemon.credentials, others)


def _files(home: Path, daemon: Daemon) -> tuple[Path, Path]:
    home.mkdir()
    papers.write(home, daemon.credentials.member)
    return papers.shown(home)


def test_connections_are_made_anew_and_nothing_is_cut(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with met() as (a, b):
            await asyncio.sleep(0.003)  # serials count milliseconds
            old = {each: each.credentials.own.serial for each in (a, b)}
            for each in (a, b):
                (tmp_path / each.peers.me.node).mkdir()
                show_another(each, tmp_path / each.peers.me.node)
                each.credentials.renewal = Renewal(max(old.values()), max(old.values()))
            sent = 0
            for each, other in ((a, "b"), (b, "a")):
                making = asyncio.create_task(each.peers.connect_anew())
                while ("moved", other, each.peers.address_of(NodeId(other))) not in each.seen:
                    each.peers.send(NodeId(other), {"t": "x", "n": sent})
                    sent += 1
                    await asyncio.sleep(0.001)
                await making
            await until(lambda: len(a.received) + len(b.received) == sent)
            for one, its_peer in ((a, b), (b, a)):
                (peer,) = one.peers._table.runs.values()
                await until(lambda it=peer: len(it.writers()) == 2)  # type: ignore[misc]
                assert one.peers.serial_of(its_peer.peers.me.node) > old[its_peer]
                one.peers.end_old()
            for one, its_peer in ((a, b), (b, a)):
                one.peers.send(its_peer.peers.me.node, {"t": "last"})
                await its_peer.until(lambda it=its_peer: it.received[-1][1]["t"] == "last")  # type: ignore[misc]
            assert not any(what == "down" for each in (a, b) for what, *_ in each.seen)

    run(main())


def test_what_shows_an_old_certificate_still_is_ended(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            serial = max(each.credentials.own.serial for each in (a, b))
            a.credentials.renewal = Renewal(serial, serial)
            a.peers.end_old()
            await a.until_seen("down", "b", "boot-1")

    run(main())


def test_a_cut_while_a_connection_is_made_anew_is_seen(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(a):
            async with running(b):
                await a.until_seen("up", "b", "boot-1")
                await b.until_seen("up", "a", "boot-1")
                b.credentials.renewal = Renewal(1 << 150, 1 << 150)  # so it takes no new ones
                await a.peers.connect_anew()
                await until(lambda: a.peers.refusals.bad_frames)
                assert a.peers.connected() == ["b"]
            await a.until_seen("down", "b", "boot-1")

    run(main())


def test_a_connection_that_is_refused_at_first_is_made_anew_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "REFUSED_SECONDS", 0.01)

    async def main() -> None:
        async with met() as (a, b):
            b.credentials.renewal = Renewal(1 << 150, 1 << 150)
            await a.peers.connect_anew()
            await until(lambda: a.peers.refusals.bad_frames)
            b.credentials.renewal = Renewal()
            await a.until_seen("moved", "b", b.address)

    run(main())


class Issuer:
    """A daemon that makes members, and one that wants a new certificate."""

    def __init__(self, folder: Path) -> None:
        self.home, self.guest_home = folder / "issuer", folder / "guest"
        for each, papers_of in ((self.home, member("i")), (self.guest_home, member("g"))):
            each.mkdir()
            key = authority_of("test").key if each == self.home else None
            papers.write(each, papers_of, key)
        self.daemon = Daemon("i")
        own = papers.read(self.home)
        self.credentials = self.daemon.credentials
        self.credentials.show(own, *papers.shown(self.home))
        self.reached: str | None = None
        desk = RenewalDesk(self.home, self.credentials, lambda node: self.reached)
        self.daemon.peers._acceptor.renew = desk.renew
        guest = papers.read(self.guest_home)
        self.guest = Credentials(guest, *papers.shown(self.guest_home), Revoked())
        digest = authority.key_of(authority.to_der(guest.certificate))
        given = GivenCertificate(self.guest.own.serial, digest, 1.0, "127.0.0.1:9")
        issuing.write(self.home, {NodeId("g"): given})

    def word(self, node: str = "g") -> Renew:
        return Renew(NodeId(node), founding.next_request(self.guest_home), "127.0.0.1:9")


def test_a_member_with_an_old_certificate_gets_a_new_one(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        host = Issuer(tmp_path)
        old = host.guest.own.serial
        host.credentials.renewal = Renewal(old, old)
        async with running(host.daemon):
            # It hasn't heard, and asks again.
            first = await ask(host.daemon.address, host.guest, host.word())
            host.reached = "127.0.0.1:10"
            made = await ask(host.daemon.address, host.guest, host.word())
            assert issuing.read(host.home)[NodeId("g")].address == host.reached
            assert issued(first).serial < issued(made).serial
            new = founding.take(host.guest_home, host.guest.member, made, old)
            assert authority.fits(made, new.key) and new.key != host.guest.member.key
            # Somebody else has only what it had before.
            stolen = Renew(NodeId("g"), authority.request_of(authority.new_key()), "127.0.0.1:9")
            with pytest.raises(OperationError, match="who has the old one only can't"):
                await ask(host.daemon.address, host.guest, stolen)
            with pytest.raises(OperationError, match="is not that of i"):
                await ask(host.daemon.address, host.guest, host.word("i"))

    run(main())


def test_one_that_was_put_out_renews_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        host = Issuer(tmp_path)
        own = host.guest.own
        host.credentials.revoked = Revoked({own.name: own.serial})
        async with running(host.daemon):
            context = host.guest
            reader, writer = await transfer.connect(host.daemon.address, context, Errand.RENEW)
            writer.write(encode(FROM_RENEWER.encode(host.word())))
            assert await reader.read() == b""
            await transfer.close(writer)
            await until(lambda: host.daemon.peers.refusals.hellos)

    run(main())


def test_a_node_that_makes_no_members_renews_nobody(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        host = Issuer(tmp_path)
        (papers.folder_of(host.home) / papers.AUTHORITY_KEY).unlink()
        async with running(host.daemon):
            with pytest.raises(OperationError, match="this node makes no certificates"):
                await ask(host.daemon.address, host.guest, host.word())

    run(main())
