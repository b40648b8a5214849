"""Host names become addresses in threads of their own.

asyncio would look them up in the threads that wait for the disk. Where that hangs, all of those are
taken, and no peer with a name could be reached.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor

from elasticd.settings.config import split_address

_THREADS = ThreadPoolExecutor(4, "names")
"""A name whose server is silent keeps one; who gives up leaves the queue."""


async def endpoints(address: str) -> list[tuple[str, int]]:
    """The numeric addresses of ``host:port``, to be tried in their order.

    Raises:
        ValueError: not an address.
        OSError: no such name, or nobody who knows.
    """
    host, port = split_address(address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [(host, port)]
    found = await asyncio.get_running_loop().run_in_executor(
        _THREADS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return list(dict.fromkeys((str(each[4][0]), port) for each in found))


def family(host: str) -> socket.AddressFamily:
    """Of a numeric address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def connection(address: str) -> socket.socket:
    """A socket that is connected to ``host:port``; the caller closes it.

    Raises:
        ValueError, OSError: as :func:`endpoints`, or nobody listens there.
    """
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    for host, port in await endpoints(address):
        opened = socket.socket(family(host), socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await loop.sock_connect(opened, (host, port))
        except OSError as error:
            opened.close()
            errors.append(error)
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise errors[0] if errors else OSError(f"{address}: the name has no address")
