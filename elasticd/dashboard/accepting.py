"""The page's server, which counts connections from their first moment: with TLS one that never
shakes hands would be in no set of uvicorn's, and would be waited for a minute."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import cast

import uvicorn

from elasticd.ipc.accepting import Unproven, next_connection

HANDSHAKE_SECONDS = 5.0
MOST_HANDSHAKES = 128


class WebServer(uvicorn.Server):
    """uvicorn's, but for how connections are accepted."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._tasks: list[asyncio.Task[None]] = []
        self._handshakes = Unproven()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for listening in sockets or []:
            listening.setblocking(False)
            listening.listen(self.config.backlog)
            self._tasks.append(asyncio.create_task(self._accept_at(listening)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in (*self._tasks, *self._handshakes):
            task.cancel()
        await super().shutdown(sockets)

    async def _accept_at(self, listening: socket.socket) -> None:
        while True:
            accepted = await next_connection(listening)
            task = asyncio.create_task(self._shake_hands(accepted))
            task.add_done_callback(partial(self._shaken, accepted))
            self._handshakes.add(task, MOST_HANDSHAKES)
            # There may be no end of them, and each needs a turn, if only to go.
            await asyncio.sleep(0)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        """Have it served, once its handshake is done where it is to make one."""
        tls = self.config.ssl
        await asyncio.get_running_loop().connect_accepted_socket(
            self._protocol,
            accepted,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            ssl_shutdown_timeout=HANDSHAKE_SECONDS if tls else None,
        )

    def _protocol(self) -> asyncio.Protocol:
        kind = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return kind(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _shaken(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        # What strangers do wrong nobody wants to read. One that is cancelled before it begins
        # closes nothing itself.
        if task.cancelled() or task.exception() is not None:
            accepted.close()
