"""Bulk bytes move in threads that end with whoever waits for them."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from elasticd.errors import ProtocolError
from elasticd.shell.network import stream
from elasticd.shell.storage.namelessfile import file_of, nameless_file, nameless_memory
from tests.macmemory import as_on_a_mac, is_shared

DATA = os.urandom(6 << 20) + b"odd tail"
Pair = tuple[socket.socket, socket.socket]
Send = Callable[[socket.socket, int, int], None]


def sent(connection: socket.socket, fd: int, count: int) -> None:
    stream.send(connection, fd, count, 10.0)


def mapped(connection: socket.socket, fd: int, count: int) -> None:
    stream.send_mapped(connection, fd, 0, count, 10.0)


def unread(connection: socket.socket, fd: int, count: int) -> None:
    """As macOS refuses to read shared memory."""

    def refuses(*arguments: object) -> int:
        raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))

    with pytest.MonkeyPatch.context() as darwin:
        darwin.setattr(os, "preadv", refuses)
        sent(connection, fd, count)


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair()
    with here, there:
        for end in (here, there):
            end.setblocking(False)
        yield here, there


@pytest.fixture
def source() -> Iterator[int]:
    fd = file_of(DATA)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("send", [sent, mapped, unread])
def test_every_byte_arrives(pair: Pair, source: int, send: Send) -> None:
    here, there = pair
    sink = nameless_file()

    async def main() -> None:
        await asyncio.gather(
            stream.aside(lambda own: send(own, source, len(DATA)), here),
            stream.aside(lambda own: stream.receive(own, sink, len(DATA), 10.0), there),
        )

    asyncio.run(main())
    assert os.pread(sink, len(DATA) + 1, 0) == DATA
    os.close(sink)


@pytest.mark.parametrize("count", [4 << 20, len(DATA), 0])
def test_every_byte_arrives_in_memory_that_a_mac_only_maps(
    pair: Pair, source: int, count: int
) -> None:
    """Where it ends within a page it is an ordinary file in the end: its size would be a lie."""
    here, there = pair
    with as_on_a_mac():
        sink = nameless_memory("darwin")
        assert is_shared(sink)

        async def main() -> None:
            await asyncio.gather(
                stream.aside(lambda own: stream.send(own, source, count, 10.0), here),
                stream.aside(lambda own: stream.receive(own, sink, count, 10.0), there),
            )

        asyncio.run(main())
        assert is_shared(sink) == (count == 4 << 20)
        assert os.fstat(sink).st_size == count
        if count:
            with mmap.mmap(sink, count, access=mmap.ACCESS_READ) as found:
                assert found[:] == DATA[:count]
    os.close(sink)


def test_memory_that_is_mapped_does_not_take_fewer_or_more(pair: Pair) -> None:
    here, there = pair
    with as_on_a_mac():
        for sent_bytes, why in ((mmap.PAGESIZE + 1, "more"), (10, "ended")):
            sink = nameless_memory("darwin")
            here.send(bytes(sent_bytes))
            if why == "ended":
                here.close()
            with pytest.raises(ProtocolError, match=why):
                stream.receive(there, sink, mmap.PAGESIZE, 10.0)
            os.close(sink)


@pytest.mark.parametrize("send", [sent, mapped])
def test_a_file_that_shrank_is_an_error(send: Send, source: int) -> None:
    here, there = socket.socketpair()
    with here, there:
        reader = threading.Thread(
            target=lambda: [None for _ in iter(partial(there.recv, 1 << 20), b"")]
        )
        reader.start()
        with pytest.raises(OSError, match="shrank"):
            send(here, source, len(DATA) + 1)
        here.close()
        reader.join()


def test_a_file_that_cannot_be_read_is_not_mapped(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    fd = os.open(path, os.O_WRONLY)
    with pytest.raises(OSError) as raised:
        stream.send(pair[0], fd, len(DATA), 10.0)
    assert raised.value.errno == errno.EBADF
    os.close(fd)


def test_fewer_or_more_bytes_are_an_error(pair: Pair) -> None:
    here, there = pair
    sink = nameless_file()
    here.send(b"long")
    with pytest.raises(ProtocolError, match="more"):
        stream.receive(there, sink, 3, 10.0)
    here.send(b"short")
    here.close()
    with pytest.raises(ProtocolError, match="ended 95 bytes early"):
        stream.receive(there, sink, 100, 10.0)
    os.close(sink)


def test_cancelling_ends_the_thread_before_it_returns(pair: Pair) -> None:
    started = threading.Event()
    ended = threading.Event()
    sink = nameless_file()

    def work(own: socket.socket) -> None:
        started.set()
        try:
            stream.receive(own, sink, 100, 10.0)
        finally:
            ended.set()

    async def main() -> None:
        waiting = asyncio.create_task(stream.aside(work, pair[1]))
        assert await asyncio.to_thread(started.wait, 10.0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended.is_set()

    asyncio.run(main())
    os.close(sink)
