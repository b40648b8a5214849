"""Who may connect, and what becomes of those who send nonsense or recordings."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.settings.config import split_address
from elasticd.shell.network import accepting, lookups, transfer
from elasticd.shell.network.binding import bound
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.trust.authority import issued
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.members import credentials, credentials_of, member
from tests.ports import free_address
from tests.unit.shell.network.daemons import (
    Cable,
    Daemon,
    RawPeer,
    Run,
    running,
    shake,
    until,
)


class Interfaces:
    """This machine's, of which some have no address yet: bind(2) says EADDRNOTAVAIL then."""

    def __init__(self, *absent: str) -> None:
        self.absent = set(absent)
        self.why = errno.EADDRNOTAVAIL
        self.asked = 0

    async def bind(self, address: str) -> list[socket.socket]:
        self.asked += address in self.absent
        if address in self.absent:
            raise OSError(self.why, os.strerror(self.why))
        return await bound(address)


def with_interfaces(
    monkeypatch: pytest.MonkeyPatch, absent: Sequence[str], own: Sequence[str]
) -> tuple[Daemon, Interfaces]:
    """A daemon that advertises ``own``, and listens on the first of these."""
    monkeypatch.setattr(accepting, "LISTEN_AGAIN_SECONDS", 0.001)
    daemon, here = Daemon("a", own=own[0], advertised=tuple(own)), Interfaces(*absent)
    daemon.peers._acceptor.bind = here.bind
    return daemon, here


async def answers_at(address: str) -> bool:
    """Whether somebody listens there."""
    try:
        (await lookups.connection(address)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("which", [0, 1])
def test_an_address_that_is_missing_at_the_start_is_listened_on_once_it_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    async def main() -> None:
        own = [free_address(), free_address()]
        daemon, here = with_interfaces(monkeypatch, [own[which]], own)
        async with running(daemon):
            assert await answers_at(own[1 - which])
            await until(lambda: here.asked > 2)
            assert not await answers_at(own[which])
            here.absent.clear()
            while not await answers_at(own[which]):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        assert not await answers_at(own[which]), "it listens on nothing any more"

    run(main())


@pytest.mark.parametrize("first", [errno.EADDRNOTAVAIL, errno.EMFILE])
def test_one_for_which_there_is_no_room_for_a_while_is_listened_on_later(
    run: Run, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    async def main() -> None:
        own = [free_address(), free_address()]
        daemon, here = with_interfaces(monkeypatch, own[1:], own)
        here.why = first
        async with running(daemon):
            here.why = errno.EMFILE
            asked = here.asked
            await until(lambda: here.asked > asked + 2)
            here.absent.clear()
            while not await answers_at(own[1]):  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    run(main())


def test_none_of_its_addresses_is_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        own = [free_address(), free_address()]
        daemon, _ = with_interfaces(monkeypatch, own, own)
        with pytest.raises(OperationError, match=r"can't listen on .*: Can(not|'t) assign"):
            await daemon.peers.start()

    run(main())


def test_another_cluster_is_refused_and_remembered(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b", cluster="other")
        a = Daemon("a", b.address)
        async with running(a, b):
            await until(lambda: a.peers.refusals.hellos)
            assert a.peers.complain.last_reason == (
                f"{b.address}: it is of another cluster: its certificate is not of this cluster's"
                " authority"
            )
            assert a.seen == [] and b.seen == []

    run(main())


def test_another_version_is_refused_and_remembered(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            newer = {"node": "c", "version": 98, "newest": 99, "release": "9.0"}
            answer = await shake(a.address, {**a.peers.me.frame(), **newer})
            assert answer["node"] == "a"
            await until(lambda: a.peers.refusals.hellos)
            assert a.peers.complain.last_reason.endswith("upgrade 'a'")
            assert a.seen == []

    run(main())


def test_a_member_speaks_for_itself_only(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            await shake(a.address, {**a.peers.me.frame(), "node": "b"}, node="c")
            await until(lambda: a.peers.refusals.hellos)
            assert "says that it is 'b', and its certificate is" in a.peers.complain.last_reason
            assert a.seen == []

    run(main())


def test_one_that_was_put_out_is_told_nothing(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        out = member("out")
        shown = issued(out.certificate)
        a.credentials.revoked = Revoked({shown.name: shown.serial})
        async with running(a):
            reader, writer = await transfer.connect(a.address, credentials_of(out))
            writer.write(encode({**a.peers.me.frame(), "node": "out"}))
            assert await reader.read() == b""
            await transfer.close(writer)
            await until(lambda: a.peers.refusals.hellos)
            assert a.peers.complain.last_reason.endswith("it was put out of the cluster")
            sink = nameless_file()
            with pytest.raises(OperationError, match="closed the connection"):
                await transfer.fetch(a.address, {"what": "state"}, sink, credentials_of(out))
            os.close(sink)

    run(main())


def test_nodes_that_disagree_about_partitions_do_not_talk(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            await shake(a.address, {**a.peers.me.frame(), "node": "c", "partition": "strict"})
            await until(lambda: a.peers.refusals.hellos)
            assert a.peers.complain.last_reason.endswith(
                "c has partition = 'strict' in its elasticd.toml and this node 'available':"
                " all nodes of a cluster must agree"
            )
            assert a.seen == []

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        b"\0\0\0\1\x01",
        encode({"t": "something"}),
        encode({"t": "hello", "node": 1}),
        encode({"t": "hello", "version": 1, "node": "x", "boot": "y"}),
        b"",
    ],
)
def test_garbage_is_counted_and_hurts_nobody(run: Run, garbage: bytes) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            _, writer = await transfer.connect(a.address, credentials("x"))
            writer.write(garbage)
            await transfer.close(writer)
            await until(lambda: a.peers.refusals.bad_frames)
            assert a.peers.connected() == ["b"]

    run(main())


@pytest.mark.parametrize(
    "lie",
    [b"\xff" * 100, b"\0\0\0\1\x01", encode({"t": "nonsense"}), encode({"no": "type"})],
)
def test_a_peer_that_sends_what_no_daemon_sends_is_disconnected(run: Run, lie: bytes) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a), RawPeer(a) as raw:
            raw.writer.write(lie)
            await a.until_seen("down", "raw", "boot-1")
            assert a.peers.refusals.bad_frames == 1

    run(main())


def test_one_that_is_put_out_loses_what_it_has(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        a.files = {"state": nameless_file()}
        a.ready.clear()
        sink = nameless_file()
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            fetched = asyncio.ensure_future(b.peers.fetch(a.address, {"what": "state"}, sink))
            await until(lambda: a.waiting)
            shown = b.credentials.own
            a.credentials.revoked = Revoked({shown.name: shown.serial})
            a.peers.cut_off()
            await a.until_seen("down", "b", "boot-1")
            with pytest.raises(OperationError, match="closed the connection"):
                await fetched
            assert a.waiting == 0
            await until(lambda: a.peers.refusals.hellos > 1)  # each dials the other again
            assert a.peers.connected() == []
        for fd in (sink, *a.files.values()):
            os.close(fd)

    run(main())


def test_one_that_was_put_out_before_its_hello_is_no_peer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        a = Daemon("a")
        out = member("out")
        accept, shaken = transfer.accept, asyncio.Event()

        async def told(*ours: Any) -> Any:
            found = await accept(*ours)
            shaken.set()
            return found

        monkeypatch.setattr(transfer, "accept", told)
        async with running(a):
            reader, writer = await transfer.connect(a.address, credentials_of(out))
            await shaken.wait()
            shown = issued(out.certificate)
            a.credentials.revoked = Revoked({shown.name: shown.serial})
            a.peers.cut_off()
            writer.write(encode({**a.peers.me.frame(), "node": "out"}))
            await until(lambda: a.peers.refusals.hellos)
            assert await reader.read() == b""
            await transfer.close(writer)
            assert a.seen == [] and a.peers.connected() == []

    run(main())


def test_many_strangers_at_once_are_no_more_than_may_be(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(accepting, "MAX_STRANGERS", 3)
        a = Daemon("a")
        seen = 0
        async with running(a):
            with contextlib.ExitStack() as stack:
                address = split_address(a.address)
                for _ in range(60):  # all of them are there before the daemon has a turn
                    stack.enter_context(socket.create_connection(address, 5))
                strangers, tasks = a.peers._acceptor._strangers, a.peers._tasks
                while seen < 3 or len(strangers) > len(tasks) or not tasks:
                    await asyncio.sleep(0)
                    seen = max(seen, len(strangers))
                for _ in range(2000):
                    await asyncio.sleep(0)
                    assert len(strangers) <= 3 and len(tasks) <= 8

    run(main())


def test_a_connection_whose_end_is_cancelled_is_closed_all_the_same(run: Run) -> None:
    """Its descriptor's number may be another's by the time that TLS gives up waiting."""

    async def main() -> None:
        a = Daemon("a")
        async with running(a), Cable(a.address) as cable:
            _, writer = await transfer.connect(cable.address, credentials("x"))
            cable.silent = True
            opened = writer.get_extra_info("socket")
            closing = asyncio.ensure_future(transfer.close(writer))
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            await until(lambda: opened.fileno() < 0)
            assert closing.cancelled()

    run(main())


def test_a_recorded_connection_is_refused_and_hurts_nobody(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a), Cable(a.address) as cable:
            b = Daemon("b", cable.address)
            async with running(b):
                await a.until_seen("up", "b", "boot-1")
            await a.until_seen("down", "b", "boot-1")
            recorded = bytes(cable.recorded[0])
            assert len(recorded) > 1000
            reader, writer = await asyncio.open_connection(*split_address(a.address))
            writer.write(recorded)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            await transfer.close(writer)
            await until(lambda: a.peers.refusals.hellos)
            assert [what for what, *_ in a.seen] == ["up", "down"]

    run(main())


def test_the_oldest_of_too_many_strangers_goes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(accepting, "MAX_STRANGERS", 3)
        a = Daemon("a")
        async with running(a):
            idle = [await asyncio.open_connection(*split_address(a.address)) for _ in range(4)]
            assert await idle[0][0].read() == b""
            hello = replace(a.peers.me, node=NodeId("c")).frame()
            assert (await shake(a.address, hello))["node"] == "a"
            for _, writer in idle:
                await transfer.close(writer)

    run(main())
