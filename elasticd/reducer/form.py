"""Turns a warm spare into the reducer of one rank of one generation."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from elasticd.errors import ProtocolError
from elasticd.ipc.memory import SLOT_BYTES, SharedMemory
from elasticd.ipc.plan import EXACT, FAST, GATHERED_FLOATS
from elasticd.ipc.records import generation_hash
from elasticd.reducer.ring import MAX_SIZE, join_ring
from elasticd.reducer.serve import Server
from elasticd.types import NodeId, Tag


def form(message: Mapping[str, Any], fds: Sequence[int]) -> Server:
    """Do what ``form`` says; returns when the ring is up and proven.

    Args:
        message: the daemon's ``form``.
        fds: chunk memory and data socket; owned from now on.

    Raises:
        ProtocolError: the message cannot be used, or a rank belongs to another generation.
        RuntimeError: the ring did not come up.
        OSError: a descriptor is of the wrong kind.
    """
    try:
        kind, rank, hosts, reduction = (message[key] for key in ("t", "rank", "hosts", "reduction"))
        counter, leader, nonce = message["generation"]
        generation = generation_hash(Tag(counter, NodeId(leader), nonce))
        memory_fd, socket_fd = fds
    except (KeyError, ValueError, TypeError) as error:
        raise ProtocolError(f"a message that forms no world: {error!r}") from error
    if kind != "form" or reduction not in (EXACT, FAST):
        raise ProtocolError(f"{kind!r} with reduction {reduction!r} forms no world")
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
    server = Server(group, generation, reduction, memory, connection)
    server.prove()
    return server
