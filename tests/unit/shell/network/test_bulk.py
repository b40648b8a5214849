"""What daemons fetch from each other, also through a third one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.shell.network import transfer
from elasticd.types import NodeId
from tests.members import credentials
from tests.ports import free_address
from tests.unit.shell.network.daemons import (
    Daemon,
    Run,
    nameless,
    running,
    until,
)


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
                (stranger, "state", None, "its certificate is not of this cluster"),
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
                (
                    {"what": "relay", "node": "c", "request": relayed("b", "state")},
                    "closed the connection",
                ),
                ({"what": "relay", "node": "c"}, "closed the connection"),
            ):
                with pytest.raises(OperationError, match=reason):
                    await a.peers.fetch(b.address, request, sink)
            b.peers.shun(NodeId("c"))
            with pytest.raises(OperationError, match="cut on purpose"):
                await a.peers.fetch(b.address, relayed("c", "state"), sink)
            for fd in (sink, *c.files.values()):
                os.close(fd)

    run(main())


@pytest.mark.parametrize("through", ["", "b"])
def test_what_is_got_ready_for_long_is_waited_for(
    through: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "WAITS_SECONDS", 0.05)
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 2.0)

    async def main() -> None:
        b = Daemon("b")
        a, c = Daemon("a", b.address), Daemon("c", b.address)
        c.files = {"state": nameless(b"12345")}
        c.ready.clear()
        async with running(b, c):
            await b.until_seen("up", "c", "boot-1")
            sink = nameless(b"")
            address, request = c.address, {"what": "state"}
            if through:
                address, request = b.address, relayed("c", "state")
            fetched = asyncio.ensure_future(a.peers.fetch(address, request, sink))
            assert not (await asyncio.wait([fetched], timeout=1.5 * transfer.IDLE_SECONDS))[0]
            c.ready.set()
            assert await fetched == 5
            assert os.pread(sink, 10, 0) == b"12345"
            c.ready.clear()
            fetched = asyncio.ensure_future(a.peers.fetch(address, request, sink))
            await until(lambda: c.waiting == 1)
            fetched.cancel()
            await until(lambda: c.waiting == 0)  # nobody is there to have it
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


def test_a_client_that_stops_reading_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 0.1)

    async def main() -> None:
        b = Daemon("b")
        b.files = {"state": nameless(bytes(64 << 20))}
        async with running(b):
            source = await transfer.asking(b.address, credentials("a"))
            await source.send(encode({"t": "fetch", "what": "state"}))
            assert await source.read_frame(1 << 16) == {"bytes": 64 << 20}
            await until(lambda: not (b.peers._tasks))
            source.close()
        os.close(b.files["state"])

    run(main())
