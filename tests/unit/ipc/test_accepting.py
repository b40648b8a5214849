"""Connections are let in after one that failed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from elasticd.ipc import accepting
from elasticd.ipc.accepting import next_connection


def let_in(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int | None]:
    """Accept one after a failure of that kind; of what was complained."""
    complaints: list[int | None] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        accept, fails = loop.sock_accept, [number] * 3

        async def failing(listening: socket.socket) -> tuple[socket.socket, Any]:
            if fails:
                raise OSError(fails.pop(), os.strerror(number))
            return await accept(listening)

        monkeypatch.setattr(loop, "sock_accept", failing)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            with socket.create_connection(listening.getsockname()):
                (
                    await next_connection(listening, lambda error: complaints.append(error.errno))
                ).close()

    asyncio.run(main())
    return complaints


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPROTO, errno.EPERM])
def test_one_that_went_away_again_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(accepting, "AGAIN_SECONDS", 3600.0)
    assert let_in(monkeypatch, number) == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_where_there_is_no_room_it_is_tried_again_in_a_while(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(accepting, "AGAIN_SECONDS", 0.001)
    assert let_in(monkeypatch, number) == [number] * 3
