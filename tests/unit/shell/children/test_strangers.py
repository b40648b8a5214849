"""Who calls at the socket of a daemon's children: others too, and when no more can be let in."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from elasticd.ipc.frames import encode
from elasticd.shell.children import server as module
from elasticd.shell.children.server import ChildServer
from tests.unit.shell.children.test_server import daemon

pytestmark = pytest.mark.process
Run = Callable[[Coroutine[Any, Any, None]], None]


def test_strangers_are_turned_away(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            child = await one.start_child('connect().send({"t": "up"})\ntime.sleep(60)')
            await one.messages.get()
            for frame in (
                encode({"t": "hello", "nonce": "guess", "pid": 1, "role": "trainer"}),
                encode({"t": "hello", "nonce": child.nonce, "pid": 1, "role": "trainer"}),
                encode({"t": "hello", "nonce": ["x"]}),
                encode({"t": "hello", "nonce": child.nonce, "pid": 1, "role": "cook"}),
                encode({"t": "bye", "status": 0}),
                b"\xff" * 100,
            ):
                reader, writer = await asyncio.open_unix_connection(tmp_path / "children.sock")
                writer.write(frame)
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            assert child.connected and child.status is None
            mode = (tmp_path / "children.sock").stat().st_mode
            assert mode & 0o777 == 0o600

    run(main())


def test_the_oldest_of_too_many_strangers_goes_and_a_child_comes_through(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with daemon(tmp_path) as one:
            idle = []
            for _ in range(module.MAX_STRANGERS + 1):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(str(tmp_path / "children.sock"))
                idle.append(connection)
            idle[0].setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(idle[0], 1) == b""
            await one.start_child('connect().send({"t": "up"})')
            await one.messages.get()
            for connection in idle:
                connection.close()

    run(main())


class Counting(ChildServer):
    """How often it looks who calls."""

    looks = 0

    def _accept(self) -> None:
        self.looks += 1
        super()._accept()


def test_without_descriptors_who_calls_waits_and_the_loop_does_not_spin(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        server = Counting(tmp_path, lambda *told: None, lambda *told: None, alive_seconds=1.0)
        await server.start()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.setblocking(False)
            free = os.dup(caller.fileno())
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                caller.connect(str(tmp_path / module.SOCKET_NAME))
                for _ in range(200):
                    await asyncio.sleep(0)
                assert 1 <= server.looks < 10
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            caller.send(b"\xff" * 100)
            assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""
        await server.close()

    run(main())
