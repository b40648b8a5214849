"""Connections are let in, also after one that has gone again, and where there is no room for one
just now."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

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
