"""What strangers do to the web server, on a socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from elasticd.dashboard import accepting, connections
from elasticd.dashboard.__main__ import config_of
from elasticd.dashboard.accepting import WebServer
from elasticd.dashboard.connections import BoundedErrors
from elasticd.dashboard.guard import HEADERS
from elasticd.shell.storage import founding
from elasticd.shell.storage import papers as of_cluster
from elasticd.types import NodeId

WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers when the body is there; one of ``/late`` never."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/late":
        await receive()  # until it hangs up
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


@contextlib.asynccontextmanager
async def serving(papers: Sequence[Path] = ()) -> AsyncIterator[int]:
    """The port of a server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = WebServer(config_of(app, *papers))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.wait([task], timeout=20)


async def said(port: int, text: bytes) -> bytes:
    """All that comes until the server hangs up."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(4096):
                found += part
        writer.close()
        return found


@pytest.mark.parametrize(
    "text, answered",
    [
        (b"", False),
        (WHOLE[:-2], False),
        (POST + b"half", False),
        (WHOLE + WHOLE[:9], True),
        (WHOLE + POST, True),
    ],
)
def test_who_sends_no_whole_request_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, text: bytes, answered: bool
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)

    async def main() -> bytes:
        async with serving() as port:
            return await said(port, text)

    assert (b"here" in asyncio.run(main())) is answered


def test_beyond_so_many_the_oldest_silent_one_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 600.0)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)

    async def main() -> None:
        async with serving() as port, asyncio.timeout(20):
            _, answered = await asyncio.open_connection("127.0.0.1", port)
            answered.write(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"here" in await said(
                port, WHOLE.replace(b"x\r\n", b"x\r\nConnection: close\r\n")
            )
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(WHOLE)
            assert b"200" in await reader.readline()
            with contextlib.suppress(ConnectionError):
                assert await silent[0][0].read() == b""
            silent[1][1].write(WHOLE)
            assert b"200" in await silent[1][0].readline()
            for each in (answered, writer, *(w for _, w in silent)):
                each.close()

    asyncio.run(main())


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    founding.found(tmp_path, NodeId("a"))
    return of_cluster.shown(tmp_path)


def test_who_never_shakes_hands_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS", 0.2)

    async def main() -> None:
        async with serving(certificate) as port:
            assert await said(port, b"") == b"" == await said(port, b"\x16\x03\x01")

    asyncio.run(main())


def test_beyond_so_many_handshakes_the_oldest_goes(
    monkeypatch: pytest.MonkeyPatch,
    certificate: tuple[Path, Path],
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS", 600.0)
    monkeypatch.setattr(accepting, "MOST_HANDSHAKES", 2)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def main() -> None:
        async with serving(certificate) as port, asyncio.timeout(20):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(WHOLE)
            assert b"200" in await reader.readline()
            with contextlib.suppress(ConnectionError):
                assert await silent[0][0].read() == b""
            # The other has still its place: it is answered, if only that this was no greeting.
            silent[1][1].write(WHOLE)
            with contextlib.suppress(ConnectionError):
                await silent[1][0].read()
            for each in (writer, *(w for _, w in silent)):
                each.close()

    asyncio.run(main())
    assert capfd.readouterr().err == ""


def test_garbage_makes_no_line_and_is_answered_with_the_headers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    )

    async def main() -> tuple[bytes, bytes]:
        async with serving() as port:
            return await said(port, b"\x16\x03 garbage\r\n\r\n"), await said(port, upgrade)

    garbage, upgraded = asyncio.run(main())
    assert garbage.startswith(b"HTTP/1.1 400 ") and upgraded.startswith(b"HTTP/1.1 200 ")
    for name, value in HEADERS.items():
        assert f"\r\n{name}: {value}\r\n".encode() in garbage
    assert capfd.readouterr().err == ""


def test_the_log_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_LOG_BYTES", 1000)
    path = tmp_path / "dashboard.log"
    with path.open("w") as file:
        logger = logging.Logger("test")
        logger.addHandler(logging.StreamHandler(BoundedErrors(file)))
        for number in range(500):
            logger.error("line %d", number)
            assert os.stat(path).st_size <= 1000
        logger.error("x" * 5000)
        logger.error("the last")
    assert path.stat().st_size <= 1000 and path.read_text().endswith("the last\n")
