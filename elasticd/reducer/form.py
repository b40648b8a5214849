"""Turns a warm spare into the reducer of one rank of one generation."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import mlx.core as mx

from elasticd.core.words.children import FormRing
from elasticd.errors import ProtocolError
from elasticd.ipc.memory import SLOT_BYTES, SharedMemory
from elasticd.ipc.plan import GATHERED_FLOATS
from elasticd.ipc.records import generation_hash
from elasticd.reducer.ring import MAX_SIZE, join_ring
from elasticd.reducer.serve import Server


def form(order: FormRing, fds: Sequence[int]) -> Server:
    """Do what ``order`` says; returns when the ring is up and proven.

    Args:
        order: the daemon's.
        fds: chunk memory and data socket; owned from now on.

    Raises:
        ProtocolError: the order cannot be used, or a rank belongs to another generation.
        RuntimeError: the ring did not come up.
        OSError: a descriptor is of the wrong kind.
    """
    rank, hosts, reduction = order.rank, order.hosts, order.reduction
    if len(fds) != 2:
        raise ProtocolError(f"{len(fds)} descriptors form no world")
    memory_fd, socket_fd = fds
    if not 0 <= rank < len(hosts) or not 2 <= len(hosts) <= MAX_SIZE:
        raise ProtocolError(f"rank {rank} of {len(hosts)} forms no world")
    memory = SharedMemory(memory_fd)
    os.close(memory_fd)
    connection = socket.socket(fileno=socket_fd)
    connection.setblocking(True)
    mx.set_default_device(mx.cpu)
    # Enough to reuse the buffers of two collectives, no more: a reducer should stay small.
    mx.set_cache_limit(2 * (SLOT_BYTES + 4 * GATHERED_FLOATS))
    group = join_ring(rank, hosts)
    generation = generation_hash(order.generation)
    server = Server(group, generation, reduction, memory, connection)
    server.prove()
    return server
