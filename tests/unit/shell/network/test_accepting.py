"""Who may connect, and what becomes of those who send nonsense or recordings."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace

import pytest

from elasticd.ipc.frames import encode
from elasticd.shell.network import accepting, transfer
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.types import NodeId
from tests.unit.shell.network.daemons import (
    Daemon,
    RawPeer,
    Run,
    running,
    shake,
    until,
)


def test_another_cluster_or_version_is_refused_and_remembered(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        b = Daemon("b", cluster="other")
        a = Daemon("a", b.address)
        async with running(a, b):
            await until(lambda: a.peers.refusals.hellos and b.peers.refusals.hellos)
            assert (
                a.peers.complain.last_reason
                == f"{b.address}: it is of another cluster: 'other/id-1'"
            )
            answer = await shake(a.address, {**b.peers.me.frame(), "cluster": "test/id-1"})
            assert answer["node"] == "a"
            newer = {"node": "c", "version": 98, "newest": 99, "release": "9.0"}
            await shake(a.address, {**a.peers.me.frame(), **newer})
            assert a.peers.complain.last_reason.endswith("upgrade 'a'")
            assert a.seen == [] and b.seen == []

    run(main())


def test_nodes_that_disagree_about_partitions_do_not_talk(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            await shake(a.address, {**a.peers.me.frame(), "node": "c", "partition": "strict"})
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
        encode({"t": "hello", "version": 1, "cluster": "test/id-1", "node": "x", "boot": "y"}),
        b"",
    ],
)
def test_garbage_is_counted_and_hurts_nobody(run: Run, garbage: bytes) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            reader, writer = await transfer.connect(a.address)
            writer.write(garbage)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()
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


def test_a_recorded_connection_is_refused_and_hurts_nobody(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a), RawPeer(a) as raw:
            recorded = encode(raw.hello) + raw.proof + encode({"t": "nonsense"})
            reader, writer = await transfer.connect(a.address)
            writer.write(recorded)
            answer = await transfer.read_frame(reader, 1 << 16)
            assert answer["challenge"] not in str(raw.proof)
            assert await reader.read() == b""
            await transfer.close(writer)
            assert "did not hear our answer" in a.peers.complain.last_reason
            assert a.peers.connected() == ["raw"] and a.received == []

    run(main())


def test_a_recorded_order_is_not_carried_out_again(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        a.files["remove"] = nameless_file()
        sink = nameless_file()
        async with running(a):
            assert await a.peers.fetch(a.address, {"what": "remove"}, sink) == 0
            reader, writer = await transfer.connect(a.address)
            order = {"t": "fetch", "what": "remove", "cluster": a.peers.me.cluster_name}
            writer.write(encode(order) + transfer.proof("00" * 8))
            assert "challenge" in await transfer.read_frame(reader, 1 << 16)
            assert await reader.read() == b""
            await transfer.close(writer)
            assert "did not hear our answer" in a.peers.complain.last_reason
        os.close(sink)
        os.close(a.files["remove"])

    run(main())


def test_the_oldest_of_too_many_strangers_goes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(accepting, "MAX_STRANGERS", 3)
        a = Daemon("a")
        async with running(a):
            idle = [await transfer.connect(a.address) for _ in range(4)]
            assert await idle[0][0].read() == b""
            hello = replace(a.peers.me, node=NodeId("c")).frame()
            assert (await shake(a.address, hello))["node"] == "a"
            for _, writer in idle:
                await transfer.close(writer)

    run(main())
