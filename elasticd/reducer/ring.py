"""The rank's group of the ring backend, and what proves that all ranks mean the same collective.

The ring has no framing: ranks that disagree get silent garbage (and so does one whose peer has
gone). Hence every collective carries a tag before and behind its data, checked for every rank.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.errors import ProtocolError
from elasticd.ipc.records import SEAL_BYTES, describe_seal

SEAL_FLOATS = SEAL_BYTES // 4
LANES = SEAL_BYTES // 2
MAX_SIZE = 256
"""Ranks whose lanes (16 bits each) still add up exactly in a float32."""


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
