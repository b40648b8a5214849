"""What TLS costs a fetch from another daemon, over loopback, where both ends share the cores.

The functions that daemons move shards with, each fetch on a connection of its own, with its
handshake. *raw*: into memory. *shard*: into memory, verified, and written so that it is durable,
as a node has a shard that it lacked. In the open and over TLS 1.3, with certificates of both ends,
in turns. The other end is a process of its own; CPU time is this end's.

    python tests/benchmarks/bench_tls.py [--rounds 10] [--mib 256]

Asked: a shard over TLS at 0.5 of the rate in the open. Nothing is asserted; the exit code is 0 when
it measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import mlx.core as mx

from elasticd.checkpoints.codec import write_shard
from elasticd.checkpoints.disk import LOCAL_DISK, write_beside
from elasticd.checkpoints.integrity import verified
from elasticd.shell.network import stream, transfer
from elasticd.shell.storage.namelessfile import nameless_file, slices
from elasticd.trust.member import MemberPapers
from tests.benchmarks.turns import compare
from tests.members import credentials_of, member

SECONDS = 60.0
OPEN, SEALED = b"o", b"s"


def serve(listening: socket.socket, path: Path, papers: MemberPapers) -> None:
    """Send the file to whoever connects, as it asks for."""
    context, size = credentials_of(papers).incoming, path.stat().st_size
    while True:
        accepted, _ = listening.accept()
        with closing(_end(accepted, context, accepted.recv(1) == SEALED, server=True)) as sink:
            fd = os.open(path, os.O_RDONLY)
            stream.send(sink, fd, size, SECONDS)
            os.close(fd)


def _end(
    connection: socket.socket, context: ssl.SSLContext, sealed: bool, *, server: bool
) -> socket.socket:
    """As the daemon has it: it does not block."""
    transfer.tune(connection)
    if sealed:
        connection = context.wrap_socket(connection, server_side=server)
    connection.setblocking(False)
    return connection


def fetch(
    address: tuple[str, int],
    context: ssl.SSLContext,
    size: int,
    keep: Callable[[int], object],
    *,
    sealed: bool,
) -> int:
    """Fetch the file once, and have it kept; returns the bytes."""
    opened = socket.create_connection(address, SECONDS)
    opened.sendall(SEALED if sealed else OPEN)
    fd = nameless_file()
    with closing(_end(opened, context, sealed, server=False)) as source:
        stream.receive(source, fd, size, SECONDS)
    os.lseek(fd, 0, os.SEEK_SET)
    keep(fd)
    os.close(fd)
    return size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mib", type=int, default=256)
    given = parser.parse_args()
    print(f"load of this machine before: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as name:
        source, kept = Path(name) / "source", Path(name) / "kept"
        kept.mkdir()
        weights = {str(n): mx.random.normal((4, 1 << 16)) for n in range(given.mib)}
        written = write_shard(source, weights, {})

        def shard(fd: int) -> None:
            write_beside(LOCAL_DISK, kept / "shard", verified(slices(fd), written.digest, "shard"))

        context = credentials_of(member("here")).outgoing
        with socket.create_server(("127.0.0.1", 0)) as listening:
            other = multiprocessing.get_context("fork").Process(
                target=serve, args=(listening, source, member("there")), daemon=True
            )
            other.start()
            try:
                once = partial(fetch, listening.getsockname(), context, source.stat().st_size)
                for what, keep in (("raw", lambda fd: None), ("shard", shard)):
                    ways = {
                        "in the open": partial(once, keep, sealed=False),
                        "TLS": partial(once, keep, sealed=True),
                    }
                    compare(what, ways, given.rounds, kept)
            finally:
                other.kill()
                other.join()


if __name__ == "__main__":
    main()
