"""Free ports for reducers."""

from __future__ import annotations

import random
import socket

from elasticd.errors import OperationError

# Below the ports that Linux (32768) and macOS (49152) give to outgoing connections, so that nobody
# takes one by chance between our choice and the ring's bind.
_PORTS = range(20_000, 32_000)
_TRIES = 200


def free_port(*addresses: str) -> int:
    """A TCP port that was free on all of ``addresses`` a moment ago.

    The ring binds it again, later and in another process; if somebody was faster the ring does not
    form and the leader tries again with fresh ports.

    Raises:
        OperationError: none was found.
    """
    for port in random.sample(_PORTS, _TRIES):
        if all(_is_free(address, port) for address in addresses):
            return port
    raise OperationError(f"no free port on {' and '.join(addresses)}")


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
