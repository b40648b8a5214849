"""Real daemons over loopback: who is connected, and over which address."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.errors import ProtocolError
from elasticd.ipc.frames import encode
from elasticd.shell.network import dialling, transfer
from elasticd.shell.network.peers import MAX_OTHERS, MAX_QUEUED_BYTES
from elasticd.shell.storage import papers
from elasticd.types import NodeId
from tests.members import credentials, member
from tests.ports import free_address
from tests.unit.shell.network.daemons import (
    Cable,
    Daemon,
    RawPeer,
    Run,
    met,
    running,
    serving,
    shake,
    until,
)


def test_two_daemons_meet_and_talk_in_order(run: Run) -> None:
    async def main() -> None:
        async with met() as (a, b):
            for number in range(1000):
                a.peers.send(NodeId("b"), {"t": "x", "n": number})
                b.peers.send(NodeId("a"), {"t": "y", "n": number, "fill": "z" * 100})
            await b.until(lambda: len(b.received) == 1000)
            await a.until(lambda: len(a.received) == 1000)
            assert [frame["n"] for _, frame in b.received] == list(range(1000))
            assert [frame["n"] for _, frame in a.received] == list(range(1000))
            assert a.peers.connected() == ["b"] and a.peers.address_of(NodeId("b")) == b.address
            a.peers.send(NodeId("nobody"), {"t": "x"})
            assert a.peers.address_of(NodeId("nobody")) is None
            with pytest.raises(ProtocolError, match="longer"):
                a.peers.send(NodeId("b"), {"t": "x", "fill": bytes(17 << 20)})
        assert a.seen == [("up", "b", "boot-1")]

    run(main())


def test_a_full_mesh_grows_from_one_known_address(run: Run) -> None:
    async def main() -> None:
        first = Daemon("n0")
        second = Daemon("n1", first.address)
        others = [second, Daemon("n2", first.address, second.address)]
        async with running(first, *others):
            for daemon in (first, *others):
                await daemon.until(lambda one=daemon: len(one.peers.connected()) == 2)  # type: ignore[misc]

    run(main())


def test_a_daemon_that_starts_later_is_met_at_once(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits until the pause before the next dial is over."""
    pauses = asyncio.Event()
    pause = dialling.Dial.pause

    async def told(dial: dialling.Dial, seconds: float) -> None:
        pauses.set()
        await pause(dial, seconds)

    monkeypatch.setattr(dialling, "REDIAL_SECONDS", 3600.0)
    monkeypatch.setattr(dialling, "SLOWEST_REDIAL_SECONDS", 3600.0)
    monkeypatch.setattr(dialling.Dial, "pause", told)

    async def main() -> None:
        address = free_address()
        b = Daemon("b", address)
        a = Daemon("a", b.address, own=address)
        async with running(a):
            await pauses.wait()
            async with running(b):
                await a.until_seen("up", "b", "boot-1")

    run(main())


def test_leaving_is_seen_by_the_other_after_the_last_words(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "CLOSE_SECONDS", 10.0)  # it gives the last words time to leave

    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(b):
            async with running(a):
                await a.until_seen("up", "b", "boot-1")
                await b.until_seen("up", "a", "boot-1")
                a.peers.send(NodeId("b"), {"t": "x", "fill": bytes(1_000_000)})
                a.peers.send(NodeId("b"), {"t": "bye"})
            await b.until_seen("down", "a", "boot-1")
            assert b.received[-1] == ("a", {"t": "bye"})
            assert b.peers.connected() == []
            a.peers.send(NodeId("b"), {"t": "dropped"})
            again = Daemon("a", b.address, own=a.address, boot="boot-2")
            async with running(again):
                await b.until_seen("up", "a", "boot-2")

    run(main())


@pytest.mark.process
def test_a_killed_daemon_is_noticed(run: Run, tmp_path: Path) -> None:
    script = """
import asyncio, sys
import pathlib
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.peers import *
from elasticd.shell.storage import papers
from elasticd.trust.revoked import Revoked
async def main():
    me = Identity("b", "boot-1", sys.argv[1])
    calls = Callbacks(print, print, print, None)
    home = pathlib.Path(sys.argv[3])
    shown = Credentials(papers.read(home), *papers.shown(home), Revoked())
    await Peers(me, sys.argv[1], [sys.argv[2]], calls, shown).start()
    await asyncio.Event().wait()
asyncio.run(main())
"""

    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            papers.write(tmp_path, member("b"))
            process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-c", script, free_address(), a.address, tmp_path],
                stdout=subprocess.DEVNULL,
            )
            try:
                await a.until_seen("up", "b", "boot-1")
                process.send_signal(signal.SIGKILL)
                await a.until_seen("down", "b", "boot-1")
            finally:
                process.kill()
                process.wait(10)

    run(main())


def test_own_address_and_own_name_are_not_dialled(run: Run) -> None:
    async def main() -> None:
        own = free_address()
        alias = own.replace("127.0.0.1", "localhost")
        a = Daemon("a", own, alias, own=own)
        namesake = Daemon("a", a.address, boot="boot-2")
        async with running(a, namesake):
            await until(lambda: not (a.peers._dialler.dials or namesake.peers._dialler.dials))
            assert "node id 'a' is this node's, too" in a.peers.complain.last_reason
            (told,) = a.peers.twins()
            assert told.startswith(f"two machines are a: this one at {own} and the one at ")
            assert a.seen == namesake.seen == []

    run(main())


def test_several_addresses_of_one_daemon_are_one_peer(run: Run) -> None:
    async def main() -> None:
        address = free_address()
        b = Daemon("b", address.replace("127.0.0.1", "localhost"), address)
        a = Daemon("a", b.address, b.address.replace("127.0.0.1", "localhost"), own=address)
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            await b.until_seen("up", "a", "boot-1")
            await until(
                lambda: any(len(peer.incoming) > 1 for peer in b.peers._table.runs.values())
            )
            for number in range(100):
                a.peers.send(NodeId("b"), {"t": "x", "n": number})
            await b.until(lambda: len(b.received) == 100)
        assert [seen for seen in a.seen if seen[0] != "moved"] == [("up", "b", "boot-1")]
        assert b.seen[:1] == [("up", "a", "boot-1")]
        assert ("up", "a", "boot-1") not in b.seen[1:]

    run(main())


@pytest.mark.parametrize("how", ["silent", "cut"])
def test_a_peer_with_two_addresses_moves_when_one_dies(run: Run, how: str) -> None:
    async def main() -> None:
        own = free_address()
        async with Cable(own) as first:
            b = Daemon("b", own=own, advertised=(first.address, own))
            a = Daemon("a", first.address)
            async with running(a, b):
                await a.until_seen("up", "b", "boot-1")
                await b.until_seen("up", "a", "boot-1")
                await until(lambda: len(a.peers.paths_of(NodeId("b"))) == 2)
                await until(lambda: a.peers.address_of(NodeId("b")) == first.address)
                assert a.peers.reached() == {NodeId("a"): a.address, NodeId("b"): first.address}
                assert a.peers.addresses() == [a.address, first.address, own]
                a.seen.clear()
                if how == "silent":
                    first.silent = True
                else:
                    first.cut()
                await a.until_seen("moved", "b", b.address)
                a.peers.send(NodeId("b"), {"t": "x"})
                await b.until(lambda: ("a", {"t": "x"}) in b.received)
                await until(
                    lambda: [p.healthy for p in a.peers.paths_of(NodeId("b"))] == [False, True]
                )
                assert ("down", "b", "boot-1") not in a.seen
                if how == "silent":
                    first.silent = False
                    await a.until_seen("moved", "b", first.address)

    run(main())


def test_a_peer_says_where_else_it_is_and_where_no_more(run: Run) -> None:
    async def main() -> None:
        own = free_address()
        async with Cable(own) as second:
            b = Daemon("b", own=own)
            a = Daemon("a", b.address)
            async with running(a, b):
                await a.until_seen("up", "b", "boot-1")
                node, both = NodeId("b"), (second.address, own)
                b.peers.moved(both)
                assert b.peers.reached()[node] == second.address
                a.peers.is_at(node, both)
                await a.until_seen("moved", "b", second.address)
                await until(lambda: [p.healthy for p in a.peers.paths_of(node)] == [True, True])
                a.peers.is_at(node, (own,))
                await a.until_seen("moved", "b", own)
                assert len(a.peers.paths_of(node)) == 1
                for wrong in (("nowhere",), tuple(f"10.0.0.1:{n}" for n in range(1, 20))):
                    with pytest.raises(ProtocolError):
                        a.peers.is_at(node, wrong)
                a.peers.is_at(NodeId("nobody"), both)
                assert ("down", "b", "boot-1") not in a.seen

    run(main())


def test_a_peer_is_found_where_it_says_at_last(run: Run) -> None:
    """Its address has changed before it knew: it connects to us, and we look for it in vain."""

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # and nobody listens
            now, before = free_address(), f"127.0.0.1:{taken.getsockname()[1]}"
            a = Daemon("a")
            b = Daemon("b", a.address, own=before, listen=now)
            async with running(a, b):
                await until(lambda: before in a.peers.dialled() and bool(b.peers._table.runs))
                b.peers.moved((now,))
                await a.until_seen("up", "b", "boot-1")
                await b.until_seen("up", "a", "boot-1")
                assert a.peers.addresses() == [a.address, now]
                assert [path.healthy for path in a.peers.paths_of(NodeId("b"))] == [True]

    run(main())


def test_two_that_have_both_moved_meet_through_a_third(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        b, c = Daemon("b", a.address), Daemon("c", a.address)
        async with running(a, b, c):
            await a.until_seen("up", "b", "boot-1")
            await a.until_seen("up", "c", "boot-1")
            others = a.peers.others_than(NodeId("c"))
            assert others == (b.address,) and b.peers.connected() == ["a"]
            c.peers.are_at((c.address, *others))
            await b.until_seen("up", "c", "boot-1")
            with pytest.raises(ProtocolError):
                c.peers.are_at(("nowhere",))
            with pytest.raises(ProtocolError):
                c.peers.are_at((b.address,) * (MAX_OTHERS + 1))

    run(main())


def test_a_peer_that_answers_on_the_wrong_connection_is_disconnected(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a), RawPeer(a) as raw:
            raw._writers[-1].write(encode({"t": "x"}))
            await a.until_seen("down", "raw", "boot-1")

    run(main())


def test_a_peer_that_does_not_read_is_disconnected_at_the_limit(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a), RawPeer(a):
            for _ in range(MAX_QUEUED_BYTES // (8 << 20) + 2):
                a.peers.send(NodeId("raw"), {"t": "x", "fill": bytes(8 << 20)})
            assert ("down", "raw", "boot-1") in a.seen

    run(main())


def test_a_connection_that_has_ended_makes_no_peer_connected(run: Run) -> None:
    """Two that did that undid each other's connections in turns, every 50 ms, for ever."""

    async def main() -> None:
        address = free_address()
        a = Daemon("a", address)
        hello = replace(a.peers.me, node=NodeId("b"), address=address, addresses=(address,)).frame()
        dials = asyncio.Queue[asyncio.StreamWriter]()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await transfer.read_frame(reader, 1 << 16)
            writer.write(encode(hello))
            dials.put_nowait(writer)

        async with serving("b", accept, address), running(a):
            await transfer.close(await dials.get())
            reader, writer = await transfer.connect(a.address, credentials("b"))
            writer.write(encode(hello))
            await transfer.read_frame(reader, 1 << 16)
            again = await dials.get()
            writer.write(encode({"t": "x"}))
            await a.until(lambda: bool(a.received))
            assert a.seen == [("up", "b", "boot-1")]
            await a.peers.close()  # or it would dial while we close
            for each in (writer, again):
                await transfer.close(each)

    run(main())


def test_another_boot_replaces_the_one_before(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a), RawPeer(a) as raw:
            await shake(a.address, {**raw.hello, "boot": "boot-2"})
            await a.until_seen("down", "raw", "boot-1")

    run(main())


def test_a_daemon_that_gives_no_address_is_dialled_again(run: Run) -> None:
    async def main() -> None:
        address = free_address()
        a = Daemon("a", address)
        hello = replace(a.peers.me, node=NodeId("b"), address=address, addresses=(address,)).frame()
        dials = 0

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal dials
            dials += 1
            await transfer.read_frame(reader, 1 << 16)
            writer.write(encode({**hello, "addresses": ["nowhere"]}))
            await transfer.close(writer)

        async with serving("b", accept, address), running(a):
            await until(lambda: dials > 1)
            assert "gives no address" in a.peers.complain.last_reason
            assert a.seen == []
            await a.peers.close()  # or it would dial while we close

    run(main())
