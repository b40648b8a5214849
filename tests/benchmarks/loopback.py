"""What a daemon's fetch of bulk data costs, encrypted, beside a bare socket."""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from blake3 import blake3

from elasticd.checkpoints.medium import sync_file
from elasticd.checkpoints.sequential import write_all
from elasticd.shell.network import transfer
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.sealed import Sealed
from tests.benchmarks.turns import compare, warm
from tests.members import credentials


def peers(folder: Path, size: int, rounds: int) -> None:
    """Print how fast as many bytes come over loopback, from memory to memory, and how fast they are
    verified and durable in a file, as a shard is."""
    source = os.memfd_create("source") if hasattr(os, "memfd_create") else _temporary()
    block = os.urandom(1 << 20)
    for start in range(0, size, len(block)):
        os.pwrite(source, block[: size - start], start)
    with _daemon_side(source) as address:
        reader = credentials("reader")
        ways: dict[str, Callable[[int], int]] = {
            "raw loopback socket": lambda sink: _raw_copy(source, size, sink),
            "elasticd fetch, encrypted": lambda sink: _fetch(address, reader, sink),
        }
        moved = {name: partial(_into_memory, way) for name, way in ways.items()}
        compare("peer", moved, rounds, before=lambda: warm(size))
        kept = {name: partial(_kept, folder / "shard", way) for name, way in ways.items()}
        compare("peer, verified and durable", kept, rounds, before=lambda: warm(size))
    os.close(source)


def _into_memory(way: Callable[[int], int]) -> int:
    sink = os.memfd_create("sink") if hasattr(os, "memfd_create") else _temporary()
    try:
        return way(sink)
    finally:
        os.close(sink)


def _kept(path: Path, way: Callable[[int], int]) -> int:
    sink = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        size = way(sink)
        blake3().update_mmap(path).digest()
        sync_file(sink)
        return size
    finally:
        os.close(sink)
        path.unlink()


def _temporary() -> int:
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


def _fetch(address: str, reader: Credentials, sink: int) -> int:
    return asyncio.run(transfer.fetch(address, {"what": "shard"}, sink, reader))


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


def _raw_copy(source: int, size: int, sink: int) -> int:
    """sendfile to a socket, recv_into and write: no frames, no loop, nothing else."""
    listener = socket.create_server(("127.0.0.1", 0))

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
    return received
