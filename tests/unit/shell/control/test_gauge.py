"""One link, measured over real sockets on this machine."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from elasticd.errors import OperationError
from elasticd.shell.control import gauge
from elasticd.shell.control.gauge import MAX_DOORS

HOST, WORD = "127.0.0.1", b"0123456789abcdef"


def open_door(host: str, word: bytes, seconds: float = 20.0) -> int:
    return gauge.open_door(host, word, seconds)


async def knock(host: str, port: int, word: bytes) -> tuple[float, float]:
    return await gauge.knock(host, port, word, 0.01)


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "elasticd-gauge"]


@pytest.fixture(autouse=True)
def all_doors_close() -> Iterator[None]:
    yield
    for each in threads():
        each.join(20)
    assert threads() == []


def test_what_comes_is_measured_and_the_door_closes() -> None:
    port = open_door(HOST, WORD)
    speed, trip = asyncio.run(knock(HOST, port, WORD))
    assert speed > 0 and trip > 0
    for each in threads():
        each.join(20)
    with pytest.raises(OSError):
        socket.create_connection((HOST, port), 1).close()


@pytest.mark.parametrize("said", [b"", b"wrong", WORD[:-1] + b"x"])
def test_a_stranger_gets_nothing_and_keeps_nobody_out(said: bytes) -> None:
    port = open_door(HOST, WORD)
    with socket.create_connection((HOST, port), 5) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(20)
        assert stranger.recv(10) == b""
    assert asyncio.run(knock(HOST, port, WORD))[0] > 0


class AbortedOnce(socket.socket):
    """One of whose connections has gone away again before it was let in."""

    aborted = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.aborted:
            self.aborted = True
            raise ConnectionAbortedError(errno.ECONNABORTED, os.strerror(errno.ECONNABORTED))
        return super().accept()


def test_one_that_went_away_again_closes_no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    def server(address: tuple[str, int], backlog: int) -> socket.socket:
        made = AbortedOnce()
        made.bind(address)
        made.listen(backlog)
        return made

    monkeypatch.setattr(socket, "create_server", server)
    assert asyncio.run(knock(HOST, open_door(HOST, WORD), WORD))[0] > 0


def test_where_nobody_listens_that_is_said() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OSError):
        asyncio.run(knock(HOST, port, WORD))


def test_whoever_hangs_up_is_no_measurement() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]

        async def met() -> None:
            asked = asyncio.ensure_future(knock(HOST, port, WORD))
            connection, _ = await asyncio.to_thread(server.accept)
            connection.close()
            await asked

        with pytest.raises(OSError):
            asyncio.run(met())


def test_who_is_cancelled_leaves_the_door() -> None:
    async def met() -> None:
        port = open_door(HOST, WORD, 0.5)
        asked = asyncio.ensure_future(knock(HOST, port, WORD))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(met())


def test_there_are_only_so_many_doors() -> None:
    ports = [open_door(HOST, WORD) for _ in range(MAX_DOORS)]
    with pytest.raises(OperationError, match="8 links to it are being measured"):
        open_door(HOST, WORD)
    for port in ports:
        asyncio.run(knock(HOST, port, WORD))


def test_an_address_that_is_not_here_costs_no_door() -> None:
    for _ in range(MAX_DOORS + 1):
        with pytest.raises(OperationError):
            open_door("192.0.2.1", WORD)
