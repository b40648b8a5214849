"""Turns a warm spare into the reducer of one rank of one generation."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

import mlx.core as mx

from elasticd.core.words.engines import EngineOrder
from elasticd.core.words.ring import FormRing
from elasticd.errors import ProtocolError
from elasticd.ipc.memory import SharedMemory
from elasticd.ipc.memoryfile import SLOT_BYTES
from elasticd.ipc.plan import EXACT, GATHERED_FLOATS
from elasticd.ipc.records import generation_hash
from elasticd.reducer.greeting import Greeting, StrangerError
from elasticd.reducer.ring import connected_from, join_ring
from elasticd.reducer.serve import Server
from elasticd.reducer.walk import Walk


def form(
    order: EngineOrder,
    fds: Sequence[int],
    on_silence: Callable[[StrangerError], None],
    on_broken: Callable[[Exception], None],
) -> Server:
    """Do what ``order`` says; returns when the group is up and proven.

    Args:
        order: the daemon's.
        fds: chunk memory and data socket; owned from now on.
        on_silence: called in a thread if a neighbour never shows who it is; never returns.
        on_broken: called in a thread if a neighbour takes nothing any more; never returns.

    Raises:
        StrangerError: a neighbour is no rank of the world.
        ProtocolError: the order cannot be used, or a rank belongs to another generation.
        RuntimeError: the group did not come up.
        OSError: a descriptor is of the wrong kind.
    """
    if len(fds) != 2:
        raise ProtocolError(f"{len(fds)} descriptors form no world")
    memory_fd, socket_fd = fds
    memory = SharedMemory(memory_fd)
    os.close(memory_fd)
    connection = socket.socket(fileno=socket_fd)
    connection.setblocking(True)
    mx.set_default_device(mx.cpu)
    # Enough to reuse the buffers of two collectives, no more: a reducer should stay small.
    mx.set_cache_limit(2 * (SLOT_BYTES + 4 * GATHERED_FLOATS))
    group = _join(order)
    generation = generation_hash(order.generation)
    along = order.walks if order.reduction == EXACT else order.chains
    walk = Walk(group, memory, on_broken) if along else None
    server = Server(group, generation, order.reduction, memory, connection, walk)
    server.prove(_greeting(order, generation, on_silence))
    return server


def _join(order: EngineOrder) -> mx.distributed.Group:
    """In the way of the backend that the order is for."""
    match order:
        case FormRing():
            return join_ring(order.rank, order.hosts)
        case _:
            assert_never(order)


def _greeting(
    order: EngineOrder, generation: bytes, on_silence: Callable[[StrangerError], None]
) -> Greeting | None:
    """None: not all ranks can show who they are."""
    if not order.secret:
        return None
    port = int(order.hosts[order.rank].rpartition(":")[2])
    return Greeting(
        order.secret,
        generation,
        order.rank,
        order.size,
        order.greet_seconds,
        on_silence,
        partial(connected_from, port),
    )
