"""One end of a child's connection, where the kernel refuses a part of a frame."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from elasticd.ipc.frames import BATCH_FDS
from elasticd.shell.children import channel as module
from elasticd.shell.children.channel import Channel


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
