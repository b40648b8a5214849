"""Ports on which tests listen later on, or have another process listen."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
# Below the ports that Linux (32768) and macOS (49152) give to outgoing connections, so that nobody
# takes one before it is bound, and below those that "elasticctl local" and rings choose from.
_PORTS = range(10_000, 20_000)[_WORKER::_WORKERS]


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
