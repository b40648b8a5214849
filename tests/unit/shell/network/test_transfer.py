"""Servers that lie or fall silent in the middle of a fetch."""

from __future__ import annotations

import asyncio
import os

import pytest

from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.shell.network import transfer
from tests.unit.shell.network.daemons import (
    Run,
    nameless,
)


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
