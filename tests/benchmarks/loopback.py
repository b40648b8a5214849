"""What a daemon's fetch of bulk data costs, encrypted, beside a bare socket."""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from elasticd.checkpoints.sequential import write_all
from elasticd.shell.network import transfer
from elasticd.shell.network.sealed import Sealed
from tests.benchmarks.turns import compare, warm
from tests.members import credentials


def peers(size: int, rounds: int) -> None:
    """Print how fast as many bytes come from another process over loopback."""
    source = os.memfd_create("source") if hasattr(os, "memfd_create") else _temporary()
    block = os.urandom(1 << 20)
    for start in range(0, size, len(block)):
        os.pwrite(source, block[: size - start], start)
    with _daemon_side(source) as address:
        sources = {
            "raw loopback socket": lambda: _raw_copy(source, size),
            "elasticd fetch": lambda: _fetch(address),
        }
        compare("peer", sources, rounds, before=lambda: warm(size))
    os.close(source)


def _temporary() -> int:
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def _fetch(address: str) -> int:
    sink = os.memfd_create("sink") if hasattr(os, "memfd_create") else _temporary()
    try:
        return asyncio.run(transfer.fetch(address, {"what": "shard"}, sink, credentials("reader")))
    finally:
        os.close(sink)


@contextmanager
def _daemon_side(source: int) -> Iterator[str]:
    """Answers fetches with ``source``, as a daemon does, in a process's other thread."""
    context = credentials("keeper").incoming
    loop = asyncio.new_event_loop()
    ready: queue.Queue[str] = queue.Queue()
    over = asyncio.Event()

    async def serve(request: dict[str, Any]) -> int:
        return os.dup(source)

    async def answer(accepted: socket.socket) -> None:
        await loop.sock_recv(accepted, 1)
        sink = Sealed.server(accepted, context)
        await sink.shake_hands()
        await transfer.answer(await sink.read_frame(1 << 16), sink, serve)
        sink.close()

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            host, port = listening.getsockname()
            ready.put(f"{host}:{port}")
            stopped = asyncio.ensure_future(over.wait())
            while not stopped.done():
                accepted = asyncio.ensure_future(loop.sock_accept(listening))
                await asyncio.wait([accepted, stopped], return_when=asyncio.FIRST_COMPLETED)
                if accepted.done():
                    await answer(accepted.result()[0])
            accepted.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        yield ready.get(timeout=10)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def _raw_copy(source: int, size: int) -> int:
    """sendfile to a socket, recv_into and write: no frames, no loop, nothing else."""
    listener = socket.create_server(("127.0.0.1", 0))
    sink = os.memfd_create("sink") if hasattr(os, "memfd_create") else _temporary()

    def send() -> None:
        with socket.create_connection(listener.getsockname()) as out:
            offset = 0
            while offset < size:
                offset += os.sendfile(out.fileno(), source, offset, 1 << 20)

    thread = threading.Thread(target=send)
    thread.start()
    received, buffer = 0, memoryview(bytearray(1 << 20))
    with listener, listener.accept()[0] as connection:
        while count := connection.recv_into(buffer):
            write_all(sink, buffer[:count])
            received += count
    thread.join()
    os.close(sink)
    return received
