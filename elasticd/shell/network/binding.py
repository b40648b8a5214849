"""The sockets on which a daemon listens for others."""

from __future__ import annotations

import socket

from elasticd.shell.network import lookups


async def bound(address: str) -> list[socket.socket]:
    """Sockets at all that ``host:port`` stands for, on which nobody listens yet.

    Raises:
        ValueError: not an address.
        OSError: nowhere at it: it is in use, say, or not this machine's.
    """
    failure: OSError | None = None
    found: list[socket.socket] = []
    for host, port in await lookups.endpoints(address):
        family = lookups.family(host)
        one = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Connections that are only just closing don't count.
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((host, port))
        except OSError as error:  # a name may stand for IPv6, too, which is not there
            one.close()
            failure = failure or error
            continue
        found.append(one)
    if failure is not None and not found:
        raise failure
    return found
