"""The rank's group of the ring backend, and what proves that all ranks mean the same collective.

The ring has no framing: ranks that disagree get silent garbage (and so does one whose peer has
gone). Hence every collective carries a tag before and behind its data, checked for every rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.errors import ProtocolError
from elasticd.ipc.records import SEAL_BYTES, describe_seal

SEAL_FLOATS = SEAL_BYTES // 4
LANES = SEAL_BYTES // 2
MAX_SIZE = 256
"""Ranks whose lanes (16 bits each) still add up exactly in a float32."""

ONE_WAY_BYTES = 512 << 10
"""A collective with less per rank goes around one way: no thread both sends and receives."""
_NAP_SECONDS = 0.02


class Naps:
    """Lets MLX's threads sleep in the kernel while the ring waits for a rank.

    They try to receive again and again, so one that waits takes a whole core, from the very
    trainers that are waited for, too. A socket that blocks, for a moment each time, takes none.
    A thread that has to send and to receive might sleep in the one while it could do the other:
    so this is for collectives that go one way.
    """

    def __init__(self) -> None:
        """To be made when the ring is up: a reducer has no other connections."""
        self._connections = list(_bounded_connections())
        self._allowed = False

    def allow(self, allowed: bool) -> None:
        """Whether threads may sleep from now on."""
        if allowed is not self._allowed:
            for fd in self._connections:
                os.set_blocking(fd, allowed)
            self._allowed = allowed


def _bounded_connections() -> Iterator[int]:
    """This process's connections, which have been told how long they may block at most."""
    if sys.platform != "linux":
        return  # it has not been tried there
    moment = struct.pack("@ll", 0, int(_NAP_SECONDS * 1e6))
    for fd, copy in _connections():
        with contextlib.suppress(OSError):
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, moment)
            copy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, moment)
            yield fd


def connected_from(port: int) -> str:
    """The address of who has connected to our port, for people."""
    for _, copy in _connections():
        with contextlib.suppress(OSError):  # it has gone already
            if copy.getsockname()[1] == port:
                host, peer_port = copy.getpeername()
                return f"{host}:{peer_port}"
    return "an unknown address"


def _connections() -> Iterator[tuple[int, socket.socket]]:
    """Descriptors of this process's IPv4 sockets, each with a copy to use meanwhile."""
    for fd in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # it was the folder's
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as copy:
                if copy.family == socket.AF_INET:
                    yield fd, copy


def join_ring(rank: int, hosts: Sequence[str]) -> mx.distributed.Group:
    """Bring up this process's only group; holds the interpreter's lock until the ring is up.

    Raises:
        ProtocolError: there is no such rank, or no such ring.
        RuntimeError: it could not be brought up.
    """
    if not 0 <= rank < len(hosts) or not 2 <= len(hosts) <= MAX_SIZE:
        raise ProtocolError(f"rank {rank} of {len(hosts)} forms no world")
    # A file without a name: a reducer may be killed at any instant and must leave nothing behind.
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps([[host] for host in hosts]).encode())
        file.seek(0)
        os.environ["MLX_RANK"] = str(rank)
        os.environ["MLX_HOSTFILE"] = f"/dev/fd/{file.fileno()}"
        group = mx.distributed.init(strict=True, backend="ring")
    if (group.rank(), group.size()) != (rank, len(hosts)):
        raise RuntimeError(f"the ring says rank {group.rank()} of {group.size()}")
    return group


def check_seals(gathered: NDArray[np.float32], expected: Sequence[bytes]) -> None:
    """Check the tags at both ends of every rank's row.

    Args:
        gathered: [ranks, SEAL_FLOATS + n + SEAL_FLOATS].
        expected: one tag a rank.

    Raises:
        ProtocolError: a rank sent another tag, or its data did not arrive whole.
    """
    for rank, seal in enumerate(expected):
        for end in (gathered[rank, :SEAL_FLOATS], gathered[rank, -SEAL_FLOATS:]):
            data = end.tobytes()
            if data != seal:
                raise ProtocolError(
                    f"rank {rank} sent {describe_seal(data)}, expected {describe_seal(seal)}"
                )


def lanes_of(seal: bytes) -> NDArray[np.float32]:
    """A tag as [LANES] small integers, which add up exactly in float32."""
    return np.frombuffer(seal, np.uint16).astype(np.float32)


def check_lanes(summed: NDArray[np.float32], seal: bytes, size: int) -> None:
    """Check that the lanes at both ends of a sum are ``size`` times this rank's own.

    Args:
        summed: [LANES + n + LANES].

    Raises:
        ProtocolError: the ranks did not all send the same tag.
    """
    expected = lanes_of(seal) * size
    if not (np.array_equal(summed[:LANES], expected) and np.array_equal(summed[-LANES:], expected)):
        raise ProtocolError(f"the ranks do not agree on {describe_seal(seal)}")
