"""Connections are let in, also after one that has gone again, and where there is no room for one
just now."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator

AGAIN_SECONDS = 0.5
"""After which a lack of descriptors or memory may be over."""
_OF_ONE = {
    errno.ECONNABORTED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EPROTO, errno.EPERM,
    errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOPROTOOPT,
}  # fmt: skip


def is_of_one(error: OSError) -> bool:
    """Whether ``accept`` has said that of one connection, which went away again, say (accept(2)):
    the next can be let in at once. Strangers can bring that about as often as they like."""
    return error.errno in _OF_ONE


class Unproven:
    """Tasks with connections that have yet to show that they mean it. Whoever does has done so at
    once, so beyond a number of them the oldest goes."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(self._tasks)

    def add(self, task: asyncio.Task[None], most: int) -> None:
        """One more; ``most``: of them all."""
        self._tasks[task] = None
        if len(self._tasks) > most:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()

    def discard(self, task: asyncio.Task[None]) -> None:
        """It has shown that, or is over."""
        self._tasks.pop(task, None)


async def next_connection(
    listening: socket.socket, complain: Callable[[OSError], None] = lambda error: None
) -> socket.socket:
    """Who has connected, once somebody has; ``complain``: that there was no room."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, _ = await loop.sock_accept(listening)
        except OSError as error:
            if is_of_one(error):
                # There may be no end of them, and others need a turn.
                await asyncio.sleep(0)
                continue
            complain(error)
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return accepted
