"""Servers that lie or fall silent in the middle of a fetch."""

from __future__ import annotations

import asyncio
import os

import pytest

from elasticd.errors import OperationError
from elasticd.ipc.frames import encode
from elasticd.shell.network import transfer
from tests.members import credentials
from tests.unit.shell.network.daemons import (
    Run,
    nameless,
    serving,
)


@pytest.mark.parametrize("in_pieces", [True, False])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection"),
        (encode({"bytes": 100}) + b"short", "ended 95 bytes early"),
        (encode({"bytes": -1}), "no size"),
        (encode({"nothing": 1}), "no size"),
        (b"\xff" * 100, "longer than 65536"),
        (b"\0\0\0\1\x01", "not a map"),
    ],
)
def test_a_server_that_lies_is_an_error(
    run: Run, answer: bytes, reason: str, in_pieces: bool
) -> None:
    fetch_fails(run, answer, reason, in_pieces)


def test_a_server_that_sends_too_much_is_an_error(run: Run) -> None:
    """If some of it is there at once: nobody waits for more than is wanted."""
    fetch_fails(run, encode({"bytes": 3}) + b"long", "more than the bytes", in_pieces=False)


def fetch_fails(run: Run, answer: bytes, reason: str, in_pieces: bool) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await transfer.read_frame(reader, 1 << 16)
        pieces = (answer[at : at + 1] for at in range(len(answer)))
        for piece in pieces if in_pieces else [answer]:
            writer.write(piece)
            await writer.drain()
        await transfer.close(writer)

    async def main() -> None:
        sink = nameless(b"")
        async with serving("b", accept) as address:
            with pytest.raises(OperationError, match=reason):
                await transfer.fetch(address, {"what": "state"}, sink, credentials("a"))
        os.close(sink)

    run(main())


def test_a_server_that_falls_silent_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "IDLE_SECONDS", 0.1)
    writers = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(encode({"bytes": 100}) + b"half")

    async def main() -> None:
        sink = nameless(b"")
        async with serving("b", accept) as address:
            with pytest.raises(OperationError, match=r"nothing came for 0\.1 s"):
                await transfer.fetch(address, {"what": "state"}, sink, credentials("a"))
            for writer in writers:
                await transfer.close(writer)
        os.close(sink)

    run(main())


def test_what_is_over_already_is_aborted_without_a_word(run: Run) -> None:
    """As Debian's Python 3.11.2 has it: in its place an error went to whoever had cancelled."""

    class Over(asyncio.Transport):
        def abort(self) -> None:
            raise AttributeError("'NoneType' object has no attribute '_abort'")

        def close(self) -> None:
            pass

        def is_closing(self) -> bool:
            return True

    async def main() -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        writer = asyncio.StreamWriter(Over(), protocol, reader, asyncio.get_running_loop())
        closing = asyncio.create_task(transfer.close(writer))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    run(main())
