"""Host names become addresses, of IPv4 alone, in threads of their own.

Daemons are found at IPv4 addresses. A Mac's ``.local`` name stands for one of IPv6 as well, often
before that, which begins with fe80:: and is good for nothing without the name of an interface.

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
    """As :func:`looked_up`, in a thread if it takes one."""
    host, port = split_address(address)
    if _is_numeric(host):
        return [(host, port)]
    return await asyncio.get_running_loop().run_in_executor(_THREADS, looked_up, address)


def looked_up(address: str) -> list[tuple[str, int]]:
    """The numeric addresses of ``host:port``, to be tried in their order. It may block.

    Raises:
        ValueError: not an address.
        OSError: no such name, or nobody who knows.
    """
    host, port = split_address(address)
    if _is_numeric(host):
        return [(host, port)]
    try:
        found = socket.getaddrinfo(host, port, family=socket.AF_INET, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a name that can't be asked for is nobody's
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: {error}") from None
    return list(dict.fromkeys((str(each[4][0]), port) for each in found))


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


async def connection(address: str) -> socket.socket:
    """A socket that is connected to ``host:port``; the caller closes it.

    Raises:
        ValueError, OSError: as :func:`endpoints`, or nobody listens there.
    """
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    for host, port in await endpoints(address):
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
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
