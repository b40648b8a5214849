"""The sockets on which a daemon listens for others."""

from __future__ import annotations

import errno
import os
import socket
import sys

from elasticd.shell.network import interfaces, lookups, ownaddresses

_CONNECT_SECONDS = 1.0
"""Who listens on this machine itself answers at once."""


async def bound(address: str) -> list[socket.socket]:
    """Sockets at all that ``host:port`` stands for, on which nobody listens yet.

    Raises:
        ValueError: not an address.
        OSError: nowhere at it: it is in use, say, or not this machine's.
    """
    failure: OSError | None = None
    found: list[socket.socket] = []
    for host, port in await lookups.endpoints(address):
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Connections that are only just closing don't count.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, port))
        except OSError as error:  # a name may stand for others besides, which are not there
            one.close()
            failure = failure or error
            continue
        found.append(one)
    if failure is not None and not found:
        raise failure
    return found


def refuse_shared(host: str, port: int, system: str = sys.platform) -> None:
    """macOS lets programs of one account listen on 127.0.0.1 beside 0.0.0.0 at the same port, each
    with SO_REUSEADDR, and whoever connects meets the nearer one. Linux refuses that bind. Without
    that option bind would refuse connections that are only just closing, so it is asked there.

    Raises:
        OSError: somebody listens where ``host:port`` would be reached.
    """
    if system != "darwin" or not port:
        return
    everywhere = [each for found in interfaces.addresses().values() for each in found]
    for each in everywhere if host == ownaddresses.EVERYWHERE else [host]:
        if _answers(each, port):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
