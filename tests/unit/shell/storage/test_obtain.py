"""A state that comes from other nodes, in memory from which a trainer reads it, on both systems."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from elasticd.checkpoints.codec import METADATA_KEY, read_tensors, write_memory, write_shard
from elasticd.core.words.records import Wanted
from elasticd.errors import OperationError
from elasticd.shell.network import stream
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.namelessfile import file_of, nameless_memory
from elasticd.shell.storage.obtain import obtain
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp
from tests.macmemory import as_on_a_mac, is_shared

ME, JOB = NodeId("me"), JobId("job")
METADATA = {METADATA_KEY: "state 7"}
WIDE = mx.arange(3 << 20, dtype=mx.float32)  # more than is moved by one call
PARTS = [{"wide": WIDE}, {"small": mx.array([1, 2, 3], mx.uint8), "none": mx.zeros((0, 4))}]
WANTED = Wanted(Point(Lineage("first"), 7, Stamp("s")), (NodeId("a"), NodeId("b")))


@pytest.fixture(params=["linux", "darwin"])
def platform(request: pytest.FixtureRequest) -> Iterator[str]:
    with as_on_a_mac():
        yield request.param


class Holders:
    """Other daemons: each sends what it has for a part."""

    def __init__(self, held: dict[tuple[str, int], int]) -> None:
        self.held = held
        self.neighbours = Neighbours(ME, self._transfer, str, lambda: [])

    async def _transfer(self, address: str, request: dict[str, Any], sink: int) -> int:
        fd = self.held.get((address, request["part"]))
        if fd is None:
            raise OperationError("it has no such state")
        size = os.fstat(fd).st_size
        here, there = socket.socketpair()
        with here, there:
            for end in (here, there):
                end.setblocking(False)
            await asyncio.gather(
                stream.aside(lambda own: stream.send(own, fd, size, 10.0), here),
                stream.aside(lambda own: stream.receive(own, sink, size, 10.0), there),
            )
        return size


def taken(holders: Holders, platform: str) -> list[int]:
    memory = partial(nameless_memory, platform)
    return asyncio.run(obtain(holders.neighbours, JOB, WANTED, memory))


def check_state(fds: list[int]) -> None:
    """That they are the whole state; closes them."""
    try:
        found, metadata = read_tensors(fds)
    finally:
        for fd in fds:
            os.close(fd)
    assert metadata == METADATA
    wanted = {name: array for part in PARTS for name, array in part.items()}
    assert found.keys() == wanted.keys()
    assert all(mx.array_equal(found[name], wanted[name]) for name in wanted)


def written(part: dict[str, mx.array]) -> int:
    """A part as a daemon of Linux sends it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part"
        write_shard(path, part, METADATA)
        return file_of(path.read_bytes())


def test_a_state_goes_through_no_disk(platform: str) -> None:
    lent = [write_memory(part, METADATA, platform) for part in PARTS]
    fds = taken(Holders({("a", 0): lent[0], ("b", 1): lent[1]}), platform)
    assert [is_shared(fd) for fd in fds] == [platform == "darwin"] * 2
    check_state(fds)
    for fd in lent:
        os.close(fd)


def test_of_a_holder_that_fails_another_gives_the_part(platform: str) -> None:
    lent = [write_memory(part, METADATA, platform) for part in PARTS]
    fds = taken(Holders({("b", 0): lent[0], ("b", 1): lent[1]}), platform)
    check_state(fds)
    with pytest.raises(OperationError, match="b: it has no such state; a: it has no such state"):
        taken(Holders({("a", 0): lent[0]}), platform)
    for fd in lent:
        os.close(fd)


def test_a_state_that_ends_within_a_page_keeps_its_length(platform: str) -> None:
    """A daemon of Linux sends one: macOS would round its size up."""
    lent = [written(part) for part in PARTS]
    assert os.fstat(lent[1]).st_size % 4096
    check_state(taken(Holders({("a", 0): lent[0], ("b", 1): lent[1]}), platform))
    for fd in lent:
        os.close(fd)
