"""Ports that are free: for reducers, and for the nodes of a local cluster."""

from __future__ import annotations

import contextlib
import errno
import random
import socket

from elasticd.errors import OperationError

PORTS = range(20_000, 32_000)
"""Below those that Linux (32768) and macOS (49152) give to outgoing connections, so that nobody
takes one by chance between our choice and the ring's bind, or while a node is away."""
_TRIES = 200


class ClaimedPort:
    """A TCP port that is free on some addresses, on all of those that there are, and that no other
    daemon will choose.

    The ring binds it much later, in another process. Until then nothing shows that it is spoken
    for, and a machine may have several nodes and clusters. So the UDP port of the same number is
    held meanwhile: it has nothing to do with the ring, and whoever chooses a port looks at both.
    """

    def __init__(self, port: int, held: contextlib.ExitStack) -> None:
        self.port = port
        self._held = held

    def close(self) -> None:
        """Let others choose it; a ring that uses it goes on."""
        self._held.close()


def claim_port(*addresses: str) -> ClaimedPort:
    """Choose a port that is free on all of ``addresses``.

    Who asks nobody may still be faster: then the ring does not form, and the leader tries again
    with fresh ports.

    Raises:
        OperationError: none was found.
    """
    for port in random.sample(PORTS, _TRIES):
        with contextlib.suppress(OSError):
            return claim(port, *addresses)
    raise OperationError(f"no free port on {' and '.join(addresses)}")


def claim(port: int, *addresses: str) -> ClaimedPort:
    """Claim this very port. An address that the machine has no longer, since a cable was pulled
    say, keeps no ring from the others.

    Raises:
        OSError: it is used or claimed on one of ``addresses``, or the machine has none of them.
    """
    gone: list[OSError] = []
    with contextlib.ExitStack() as held:
        for address in addresses:
            try:
                held.enter_context(_bound(socket.SOCK_DGRAM, address, port))
                _bound(socket.SOCK_STREAM, address, port).close()
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                gone.append(error)
        if gone and len(gone) == len(addresses):
            raise gone[0]
        return ClaimedPort(port, held.pop_all())


def _bound(kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, kind)
    try:
        found.bind((address, port))
    except OSError:
        found.close()
        raise
    return found
