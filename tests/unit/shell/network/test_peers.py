"""Real daemons' connections over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.ipc.frames import Decoder, encode
from elasticd.shell.network import peers as module
from elasticd.shell.network import transfer
from elasticd.shell.network.hello import Identity
from elasticd.shell.network.peers import Callbacks, Peers, is_loopback
from elasticd.types import NodeId

Run = Callable[[Coroutine[Any, Any, None]], None]


async def until(true: Callable[[], object]) -> None:
    """For states that nobody announces; the fixture bounds the time."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Daemon:
    """Peers under test, and what they called back with, in order."""

    def __init__(
        self,
        node: str,
        *addresses: str,
        own: str = "",
        boot: str = "boot-1",
        cluster: str = "test",
        insecure: bool = False,
        also: tuple[str, ...] = (),
    ) -> None:
        self.address = own or free_address()
        self.seen: list[tuple[Any, ...]] = []
        self.received: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, int] = {}
        self._news = asyncio.Event()
        me = Identity(
            "id-1", cluster, NodeId(node), boot, self.address, addresses=(self.address, *also)
        )
        calls = Callbacks(self._up, self._down, self._message, self._serve, self._moved)
        self.peers = Peers(me, self.address, addresses, calls, insecure)

    def _up(self, node: NodeId, boot: str, address: str) -> None:
        self.seen.append(("up", node, boot))
        self._news.set()

    def _moved(self, node: NodeId, boot: str, address: str) -> None:
        self.seen.append(("moved", node, address))
        self._news.set()

    def _down(self, node: NodeId, boot: str, reason: str) -> None:
        self.seen.append(("down", node, boot))
        self._news.set()

    def _message(self, node: NodeId, frame: dict[str, Any]) -> None:
        assert node in self.peers.connected()
        if frame["t"] == "nonsense":
            raise ProtocolError("nonsense")
        self.received.append((node, frame))
        self._news.set()

    async def _serve(self, request: dict[str, Any]) -> int:
        if request["what"] == "missing":
            raise OperationError("it isn't here")
        return os.dup(self.files[request["what"]])

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self._news.clear()
            await self._news.wait()

    async def until_seen(self, *what: Any) -> None:
        await self.until(lambda: what in self.seen)


@contextlib.asynccontextmanager
async def running(*daemons: Daemon) -> AsyncIterator[None]:
    try:
        for daemon in daemons:
            await daemon.peers.start()
        yield
    finally:
        for daemon in daemons:
            await daemon.peers.close()


def test_two_daemons_meet_and_talk_in_order(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            await b.until_seen("up", "a", "boot-1")
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
        others = [Daemon(f"n{number}", first.address) for number in (1, 2)]
        others[1].peers.addresses = (first.address, others[0].address)
        async with running(first, *others):
            for daemon in (first, *others):
                await daemon.until(lambda one=daemon: len(one.peers.connected()) == 2)  # type: ignore[misc]

    run(main())


def test_a_daemon_that_starts_later_is_met_at_once(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        b.peers.addresses = (a.address,)
        async with running(a):
            await asyncio.sleep(0.5)  # a's pauses have grown
            started = time.monotonic()
            async with running(b):
                await a.until_seen("up", "b", "boot-1")
                assert time.monotonic() - started < 0.4

    run(main())


def test_leaving_is_seen_by_the_other_after_the_last_words(run: Run) -> None:
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
def test_a_killed_daemon_is_noticed_in_milliseconds(run: Run) -> None:
    script = """
import asyncio, sys
from elasticd.shell.network.peers import *
async def main():
    me = Identity("id-1", "test", "b", "boot-1", sys.argv[1])
    calls = Callbacks(print, print, print, None)
    await Peers(me, sys.argv[1], [sys.argv[2]], calls).start()
    await asyncio.Event().wait()
asyncio.run(main())
"""

    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            process = subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-c", script, free_address(), a.address], stdout=subprocess.DEVNULL
            )
            try:
                await a.until_seen("up", "b", "boot-1")
                started = time.monotonic()
                process.send_signal(signal.SIGKILL)
                await a.until_seen("down", "b", "boot-1")
                assert time.monotonic() - started < 1.0
            finally:
                process.kill()
                process.wait(10)

    run(main())


def test_another_cluster_or_version_is_refused_and_remembered(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        b = Daemon("b", cluster="other")
        a = Daemon("a", b.address)
        async with running(a, b):
            await until(lambda: a.peers.counters.refused_hellos and b.peers.counters.refused_hellos)
            assert (
                a.peers.complain.last_reason
                == f"{b.address}: it is of another cluster: 'other/id-1'"
            )
            answer = await shake(a.address, {**b.peers.me.frame(), "cluster": "test/id-1"})
            assert answer["node"] == "a"
            await shake(a.address, {**a.peers.me.frame(), "node": "c", "version": 99})
            assert "another version: '99'" in a.peers.complain.last_reason
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


async def shake(address: str, frame: dict[str, Any], prove: bool = False) -> dict[str, Any]:
    """Say hello, return the answer, hang up."""
    reader, writer = await transfer.connect(address)
    writer.write(encode(frame))
    answer = await transfer.read_frame(reader, 1 << 16)
    if prove:
        writer.write(transfer.proof(answer["challenge"]))
    await transfer.close(writer)
    return answer


def test_own_address_and_own_name_are_not_dialled(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        alias = a.address.replace("127.0.0.1", "localhost")
        a.peers.addresses = (a.address, alias)
        namesake = Daemon("a", a.address, boot="boot-2")
        async with running(a, namesake):
            await until(lambda: not (a.peers._dials or namesake.peers._dials))
            assert "node id 'a' is this node's, too" in a.peers.complain.last_reason
            assert a.seen == namesake.seen == []

    run(main())


def test_several_addresses_of_one_daemon_are_one_peer(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address, b.address.replace("127.0.0.1", "localhost"))
        b.peers.addresses = (a.address.replace("127.0.0.1", "localhost"), a.address)
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            await b.until_seen("up", "a", "boot-1")
            await until(lambda: any(len(peer.incoming) > 1 for peer in b.peers._peers.values()))
            for number in range(100):
                a.peers.send(NodeId("b"), {"t": "x", "n": number})
            await b.until(lambda: len(b.received) == 100)
        assert [seen for seen in a.seen if seen[0] != "moved"] == [("up", "b", "boot-1")]
        assert b.seen[:1] == [("up", "a", "boot-1")]
        assert ("up", "a", "boot-1") not in b.seen[1:]

    run(main())


class Cable:
    """A relay between an address of its own and another: a path that can fall silent or be cut."""

    def __init__(self, target: str) -> None:
        self.address = free_address()
        self.target = target
        self.silent = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Cable:
        host, _, port = self.address.rpartition(":")
        self.server = await asyncio.start_server(self._accept, host, int(port))
        return self

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await transfer.connect(self.target)
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if not self.silent:
                    sink.write(data)
        sink.close()

    def cut(self) -> None:
        self.server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize("how", ["silent", "cut"])
def test_a_peer_with_two_addresses_moves_when_one_dies(run: Run, how: str) -> None:
    async def main() -> None:
        b = Daemon("b")
        async with Cable(b.address) as first:
            b.peers.me = replace(b.peers.me, addresses=(first.address, b.address))
            a = Daemon("a", first.address)
            async with running(a, b):
                await a.until_seen("up", "b", "boot-1")
                await b.until_seen("up", "a", "boot-1")
                await until(lambda: len(a.peers.paths_of(NodeId("b"))) == 2)
                await until(lambda: a.peers.address_of(NodeId("b")) == first.address)
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
            await until(lambda: a.peers.counters.bad_frames)
            assert a.peers.connected() == ["b"]

    run(main())


class RawPeer:
    """A peer by hand: answers hello and then does what the test says."""

    def __init__(self, daemon: Daemon) -> None:
        self.address = free_address()
        me = daemon.peers.me
        own = self.address
        self.hello = replace(me, node=NodeId("raw"), address=own, addresses=(own,)).frame()
        self.daemon = daemon
        self.incoming: asyncio.StreamReader
        self._up = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> RawPeer:
        host, _, port = self.address.rpartition(":")
        self.server = await asyncio.start_server(self._accept, host, int(port))
        self.reader, self.writer = await transfer.connect(self.daemon.address)
        self._writers.append(self.writer)
        self.writer.write(encode(self.hello))
        answer = await transfer.read_frame(self.reader, 1 << 16)
        self.proof = transfer.proof(answer["challenge"])
        self.writer.write(self.proof)
        await self.daemon.until_seen("up", "raw", "boot-1")
        return self

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) > 1:  # it is dialled again after it was dropped
            writer.transport.abort()
        else:
            self._writers.append(writer)
            self.greeting = asyncio.create_task(self._greet(reader, writer))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await transfer.read_frame(reader, 1 << 16)
        writer.write(encode(self.hello))
        reader._transport.pause_reading()  # type: ignore[attr-defined]

    async def __aexit__(self, *_: object) -> None:
        await self.daemon.peers.close()  # or it would dial while we close
        self.server.close()
        await self.greeting
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


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
            assert a.peers.counters.bad_frames == 1

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
            for _ in range(module.MAX_QUEUED_BYTES // (8 << 20) + 2):
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
            writer.write(encode({**hello, "challenge": "00"}))
            await transfer.read_frame(reader, 1 << 16)
            dials.put_nowait(writer)

        host, _, port = address.rpartition(":")
        async with await asyncio.start_server(accept, host, int(port)), running(a):
            await transfer.close(await dials.get())
            reader, writer = await transfer.connect(a.address)
            writer.write(encode(hello))
            answer = await transfer.read_frame(reader, 1 << 16)
            writer.write(transfer.proof(answer["challenge"]))
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
            await shake(a.address, {**raw.hello, "boot": "boot-2"}, prove=True)
            await a.until_seen("down", "raw", "boot-1")

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
        a.files["remove"] = os.memfd_create("removed")
        sink = os.memfd_create("sink")
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
        monkeypatch.setattr(module, "MAX_STRANGERS", 3)
        a = Daemon("a")
        async with running(a):
            idle = [await transfer.connect(a.address) for _ in range(4)]
            assert await idle[0][0].read() == b""
            hello = replace(a.peers.me, node=NodeId("c")).frame()
            assert (await shake(a.address, hello))["node"] == "a"
            for _, writer in idle:
                await transfer.close(writer)

    run(main())


def test_what_is_not_loopback_needs_insecure(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a", own="0.0.0.0:1")
        with pytest.raises(UsageError, match=r"listen = '0\.0\.0\.0:1'.*--insecure"):
            await a.peers.start()
        b = Daemon("b", "192.0.2.1:7070")
        with pytest.raises(UsageError, match="peers = "):
            await b.peers.start()
        port = free_address().rpartition(":")[2]
        c = Daemon("c", own=f"0.0.0.0:{port}", insecure=True)
        async with running(c):
            pass
        d, e = Daemon("d"), Daemon("e")
        e.peers.listen = d.peers.listen
        async with running(d):
            with pytest.raises(OperationError, match="can't listen"):
                await e.peers.start()

    run(main())


def test_an_address_from_elsewhere_is_not_learned_without_insecure(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a")
        async with running(a):
            hello = {**a.peers.me.frame(), "node": "far", "address": "192.0.2.1:7070"}
            await shake(a.address, hello)
            assert a.peers._dials == {}
            await shake(a.address, {**hello, "address": "nowhere"})
            await until(lambda: a.peers.counters.bad_frames)

    run(main())


def test_loopback() -> None:
    assert is_loopback("127.0.0.1") and is_loopback("127.9.9.9") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("node-1.local")


def nameless(data: bytes) -> int:
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())


def test_fetch_brings_every_byte_and_messages_go_on_meanwhile(run: Run) -> None:
    data = os.urandom(1 << 20) * 24 + b"odd tail"

    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        b.files = {"state": nameless(data), "empty": nameless(b"")}
        async with running(a, b):
            await a.until_seen("up", "b", "boot-1")
            sinks = [nameless(b"") for _ in range(3)]
            sizes = await asyncio.gather(
                *(a.peers.fetch(b.address, {"what": "state"}, sink) for sink in sinks)
            )
            assert sizes == [len(data)] * 3
            for sink in sinks:
                assert os.pread(sink, len(data) + 1, 0) == data
            assert await a.peers.fetch(b.address, {"what": "empty"}, sinks[0]) == 0
            for sink in (*sinks, *b.files.values()):
                os.close(sink)
            assert a.peers.connected() == ["b"]

    run(main())


def test_fetch_says_what_went_wrong(run: Run) -> None:
    async def main() -> None:
        b = Daemon("b")
        stranger = Daemon("s", cluster="other")
        b.files = {"state": nameless(b"12345")}
        async with running(b):
            sink = nameless(b"")
            for daemon, what, limit, reason in (
                (b, "missing", None, "missing from .*: it isn't here"),
                (stranger, "state", None, "another cluster"),
                (b, "state", 4, "5 bytes, more than 4"),
            ):
                with pytest.raises(OperationError, match=reason):
                    await daemon.peers.fetch(b.address, {"what": what}, sink, limit)
            with pytest.raises(OperationError, match="state from 127"):
                await b.peers.fetch(free_address(), {"what": "state"}, sink)
            with pytest.raises(OperationError, match="not host:port"):
                await b.peers.fetch("nowhere", {"what": "state"}, sink)
            os.close(sink)
            sink = os.open(os.devnull, os.O_RDONLY)
            with pytest.raises(OperationError, match="Bad file descriptor"):
                await b.peers.fetch(b.address, {"what": "state"}, sink)
            os.close(sink)
            os.close(b.files["state"])

    run(main())


def relayed(node: str, what: str) -> dict[str, Any]:
    return {"what": "relay", "node": node, "request": {"what": what}}


def test_a_third_node_passes_on_what_another_has(run: Run) -> None:
    data = os.urandom(1 << 20) * 24 + b"odd tail"

    async def main() -> None:
        b = Daemon("b")
        a, c = Daemon("a", b.address), Daemon("c", b.address)
        c.files = {"state": nameless(data), "empty": nameless(b"")}
        async with running(b, c):
            await b.until_seen("up", "c", "boot-1")
            sink = nameless(b"")
            assert await a.peers.fetch(b.address, relayed("c", "state"), sink) == len(data)
            assert os.pread(sink, len(data) + 1, 0) == data
            assert await a.peers.fetch(b.address, relayed("c", "empty"), sink) == 0
            for request, reason in (
                (relayed("c", "missing"), "missing from .*: it isn't here"),
                (relayed("x", "state"), "x is not connected"),
                ({"what": "relay", "node": "c", "request": relayed("b", "state")}, "hung up"),
                ({"what": "relay", "node": "c"}, "hung up"),
            ):
                with pytest.raises(OperationError, match=reason):
                    await a.peers.fetch(b.address, request, sink)
            b.peers.shun(NodeId("c"))
            with pytest.raises(OperationError, match="cut on purpose"):
                await a.peers.fetch(b.address, relayed("c", "state"), sink)
            for fd in (sink, *c.files.values()):
                os.close(fd)

    run(main())


def test_a_part_is_not_passed_on_for_the_whole(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        b = Daemon("b")
        c = Daemon("c", b.address)
        # It has a size, but cannot be read: c hangs up after it has said how much it has.
        c.files = {"state": os.open(tmp_path, os.O_RDONLY)}
        async with running(b, c):
            await b.until_seen("up", "c", "boot-1")
            sink = nameless(b"")
            with pytest.raises(OperationError, match=r"ended \d+ bytes early"):
                await b.peers.fetch(b.address, relayed("c", "state"), sink)
            os.close(sink)
        os.close(c.files["state"])

    run(main())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "it hung up"),
        (encode({"bytes": 100}) + b"short", "ended 95 bytes early"),
        (encode({"bytes": 3}) + b"long", "more than the 3 bytes"),
        (encode({"bytes": -1}), "no size"),
        (encode({"nothing": 1}), "no size"),
        (b"\xff" * 100, "no answer but something else"),
        (b"\0\0\0\1\x01", "not a map"),
    ],
)
def test_a_server_that_lies_is_an_error(run: Run, answer: bytes, reason: str) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await transfer.read_frame(reader, 1 << 16)
        for position in range(len(answer)):  # in the smallest pieces
            writer.write(answer[position : position + 1])
            await writer.drain()
        await transfer.close(writer)

    async def main() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sink = nameless(b"")
        with pytest.raises(OperationError, match=reason):
            await transfer.fetch(f"127.0.0.1:{port}", {"what": "state"}, sink)
        os.close(sink)
        server.close()
        await server.wait_closed()

    run(main())


def test_a_server_that_falls_silent_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 0.1)
    writers = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(encode({"bytes": 100}) + b"half")

    async def main() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sink = nameless(b"")
        with pytest.raises(OperationError, match=r"nothing came for 0\.1 s"):
            await transfer.fetch(f"127.0.0.1:{port}", {"what": "state"}, sink)
        os.close(sink)
        server.close()
        for writer in writers:
            await transfer.close(writer)
        await server.wait_closed()

    run(main())


def test_a_client_that_stops_reading_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 0.1)

    async def main() -> None:
        b = Daemon("b")
        b.files = {"state": nameless(bytes(64 << 20))}
        async with running(b):
            reader, writer = await transfer.connect(b.address)
            request = {"t": "fetch", "what": "state", "cluster": b.peers.me.cluster_name}
            writer.write(encode(request))
            decoder = Decoder()
            frames: list[dict[str, Any]] = []
            while not frames:
                frames = decoder.feed(await reader.readexactly(1))
            assert frames[0]["bytes"] == 64 << 20
            await until(lambda: not (b.peers._tasks))
            await transfer.close(writer)
        os.close(b.files["state"])

    run(main())
