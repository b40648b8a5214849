"""Relays between daemons: every byte late, some very late, and connections that break now and then.

TCP loses no bytes; what a lossy link does to it is late bytes, in bursts, and in the end a reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.settings.config import split_address
from tests.integration.netns import NetCluster
from tests.ports import free_ports

_READ_BYTES = 64 * 1024


@dataclass(frozen=True)
class Weather:
    """What a relay does to each piece of a stream."""

    delay_seconds: float = 0.01
    """Each piece is late by up to twice this."""
    stall_chance: float = 0.0
    """Of a piece, as if a packet were lost and sent again."""
    stall_seconds: float = 0.2
    break_chance: float = 0.0
    """Of a connection, at each piece."""


class Relays:
    """Any number of relays in a thread of their own."""

    def __init__(self, weather: Weather, seed: int) -> None:
        self._weather, self._dice = weather, random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays")
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self.pieces = self.stalls = self.breaks = 0

    def open(self, target: str) -> str:
        """A new address that leads to ``target``."""
        starting = asyncio.run_coroutine_threadsafe(self._open(target), self._loop)
        return starting.result(10)

    async def _open(self, target: str) -> str:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._relay(target, reader, writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _relay(
        self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            host, port = split_address(target)
            far_reader, far_writer = await asyncio.open_connection(host, port)
            writers = (writer, far_writer)

            def cut() -> None:
                for one in writers:
                    one.transport.abort()

            try:
                await asyncio.gather(
                    self._pump(reader, far_writer, cut), self._pump(far_reader, writer, cut)
                )
            finally:
                cut()
        writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: Callable[[], None]
    ) -> None:
        weather = self._weather
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                self.pieces += 1
                await asyncio.sleep(2 * weather.delay_seconds * self._dice.random())
                if self._dice.random() < weather.stall_chance:
                    self.stalls += 1
                    await asyncio.sleep(weather.stall_seconds)
                if self._dice.random() < weather.break_chance:
                    self.breaks += 1
                    break
                writer.write(data)
                await writer.drain()
        cut()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what is aborted ends behind this


class RelayedCluster(NetCluster):
    """Daemons on loopback that reach one another only through relays; rings are direct."""

    def __init__(
        self, folder: Path, nodes: int, kernels: Path | None, weather: Weather, **settings: Any
    ) -> None:
        self.relays = Relays(weather, seed=5)
        self._ports: dict[str, int] = {}
        self._doors: dict[str, str] = {}
        super().__init__(folder, nodes, kernels, **settings)

    def _wire(self) -> None:
        self._ports = dict(zip(self.nodes, free_ports(self.size), strict=True))
        for node in self.nodes:
            self._doors[node] = self.relays.open(self.listens(node))

    def listens(self, node: str) -> str:
        return f"127.0.0.1:{self._ports[node]}"

    def answers(self, node: str) -> list[str]:
        return [self._doors[node]]

    def launcher(self, node: str) -> list[str]:
        return []

    def join(self) -> None:
        """There is nothing that it could part."""

    def _unwire(self) -> None:
        self.relays.close()
