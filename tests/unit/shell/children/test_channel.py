"""One end of a child's connection, where the kernel refuses a part of a frame."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import psutil
import pytest

from elasticd.ipc.frames import BATCH_FDS, FrameSocket, encode
from elasticd.shell.children import channel as module
from elasticd.shell.children.channel import Channel
from tests.fullsocket import full_pair


def test_behind_half_a_frame_the_other_end_meets_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many descriptors on their way, say. What came next would be read as that frame's rest."""
    sent: list[int] = []

    def scarce(connection: socket.socket, data: memoryview, fds: list[int]) -> int:
        if sent:
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        sent.append(len(fds))
        return connection.send(data)

    monkeypatch.setattr(module, "send_batch", scarce)

    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            channel = Channel(ours, lambda *_: None, lambda _: None)
            channel.send({"kind": "state"}, [theirs.fileno()] * (BATCH_FDS + 1))
            channel.send({"kind": "alive"})
            theirs.setblocking(False)
            loop = asyncio.get_running_loop()
            data = b""
            while part := await loop.sock_recv(theirs, 1 << 16):
                data += part
            channel.close()
            return data

    assert len(asyncio.run(asyncio.wait_for(main(), 30.0))) == 1
    assert sent == [BATCH_FDS]


def test_descriptors_wait_until_a_full_socket_has_room() -> None:
    """What is sent meanwhile comes behind them."""

    async def main() -> None:
        ours, theirs = full_pair(refusals=3)
        receiver = FrameSocket(theirs)
        channel = Channel(ours, lambda *_: None, lambda _: None)
        channel.send({"kind": "state"}, [theirs.fileno()] * (BATCH_FDS + 1))
        channel.send({"kind": "alive"})
        assert ours.refusals == 2 and channel.queued_bytes, "it is not asked at each frame"
        got = await asyncio.to_thread(receiver.receive)
        assert got is not None
        message, fds = got
        assert message["kind"] == "state" and len(fds) == BATCH_FDS + 1
        assert await asyncio.to_thread(receiver.receive) == ({"kind": "alive"}, [])
        for fd in fds:
            os.close(fd)
        channel.close()
        receiver.close()

    asyncio.run(asyncio.wait_for(main(), 30.0))


def is_open(end: socket.socket) -> bool:
    """Whether somebody has the other end of a pair."""
    try:
        return bool(end.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True


@pytest.mark.parametrize("how", ["said", "closed"])
def test_a_socket_that_was_sent_stays_open_until_it_has_been_taken(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As on macOS, where one that nobody has open may be shut down on its way."""
    said = asyncio.Event()

    async def main() -> None:
        ours, theirs = socket.socketpair()
        mine, given = socket.socketpair()
        folder = os.open("/", os.O_RDONLY)
        with ours, theirs, mine:
            channel = Channel(ours, lambda *_: said.set(), lambda _: None, holds_sockets=True)
            with given:
                channel.send({"kind": "world"}, [folder, given.fileno()])
            os.close(folder)
            _, (other, taken), _, _ = socket.recv_fds(theirs, 1 << 16, 2)
            os.close(other)
            os.close(taken)
            assert is_open(mine), "the other end has it no more, and we have"
            theirs.send(encode({"kind": "alive"}))
            await said.wait()
            assert is_open(mine), "that may have been said before"
            if how == "said":
                monkeypatch.setattr(module, "SETTLED_SECONDS", 0.0)
                said.clear()
                theirs.send(encode({"kind": "alive"}))
                await said.wait()
                assert not is_open(mine)
            channel.close()
            assert not is_open(mine)

    before = psutil.Process().num_fds()
    asyncio.run(asyncio.wait_for(main(), 30.0))
    assert psutil.Process().num_fds() == before
