"""Ports on which tests listen later on, or have another process listen."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
# Below the ports that Linux (32768) and macOS (49152) give to outgoing connections, so that nobody
# takes one before it is bound, and below those that "elasticctl local" and rings choose from.
_PORTS = range(10_000, 20_000)[_WORKER::_WORKERS]


def names_of_a_mac(host: str) -> Callable[..., list[tuple[Any, ...]]]:
    """As socket.getaddrinfo on a Mac says of a name of ``host``: IPv6 of one link comes first."""

    def looked_up(_: str, port: int, family: int = 0, **__: int) -> list[tuple[Any, ...]]:
        tcp = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        found = [
            (socket.AF_INET6, *tcp, ("fe80::1", port, 0, 4)),
            (socket.AF_INET, *tcp, (host, port)),
        ]
        return [each for each in found if family in (0, each[0])]

    return looked_up


def free_address() -> str:
    """On loopback."""
    (port,) = free_ports(1)
    return f"127.0.0.1:{port}"


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now. Each is given once, as long as there are others, and to one of the
    processes only in which pytest runs tests."""
    with _asking:
        return [next(_free) for _ in range(count)]


def _all_free() -> Iterator[int]:
    # Not by the seed that a test may have set: another pytest may run here with the same.
    dice = random.SystemRandom()
    while True:
        for port in dice.sample(_PORTS, len(_PORTS)):
            if _is_free(port):
                yield port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_asking = threading.Lock()
_free = _all_free()
