"""Reducers that show one another that they know their world's secret, and strangers that don't."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.children.test_reducer import PATIENCE_SECONDS, World
from tests.ports import free_ports

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

SECRET, ANOTHER = b"known to the ranks of one world.", b"known to the ranks of some other"
SHORT_SECONDS = 0.5
"""The patience of who is to lose it."""


class Attacked(World):
    """A ring to which a stranger connects as soon as the rank ``victim`` listens."""

    def __init__(
        self, folder: Path, size: int, victim: int, says: bytes | None, reset: bool = False
    ) -> None:
        """``says``: None: it hangs up, with a ``reset`` or without."""
        self.victim, self.says, self.reset = victim, says, reset
        self.stranger: socket.socket | None = None
        super().__init__(folder, size, "exact", secret=SECRET)

    def _form(self) -> None:
        self._bring_up(free_ports(self.size))

    def told(self, rank: int) -> dict[str, Any]:
        loses = rank == self.victim and self.says is not None and len(self.says) < 32
        return {"secret": SECRET, "greet_seconds": SHORT_SECONDS if loses else PATIENCE_SECONDS}

    def _await_listening(self, rank: int, port: int) -> None:
        if rank > self.victim and rank == self.size - 1:
            return  # the victim, which no neighbour holds back, may connect to it at once
        super()._await_listening(rank, port)
        if rank == self.victim:
            self.stranger = socket.create_connection(("127.0.0.1", port))
            if self.reset:
                lasting = struct.pack("@ii", 1, 0)
                self.stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lasting)
            if self.says is None:
                self.stranger.close()
            else:
                self.stranger.sendall(self.says)

    def close(self) -> None:
        if self.stranger is not None:
            self.stranger.close()
        super().close()


class TwoSecrets(World):
    """Of which one rank knows another one."""

    def __init__(self, folder: Path, size: int, odd: int) -> None:
        self.odd = odd
        super().__init__(folder, size, "exact")

    def _form(self) -> None:
        self._bring_up(free_ports(self.size))

    def told(self, rank: int) -> dict[str, Any]:
        return {"secret": ANOTHER if rank == self.odd else SECRET}


Closing = Callable[[World], World]


@pytest.fixture
def closing() -> Iterator[Closing]:
    """Ends what it is given."""
    with contextlib.ExitStack() as stack:

        def later(world: World) -> World:
            stack.callback(world.close)
            return world

        yield later


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_ranks_that_know_the_secret_form_a_ring(
    tmp_path: Path, closing: Closing, size: int
) -> None:
    world = closing(World(tmp_path, size, "exact", secret=SECRET))
    assert world.barrier(0) == [None] * size


@pytest.mark.parametrize("says", [None, b"", b"abc", bytes(32), bytes(range(256)) * 300])
@pytest.mark.parametrize(("size", "victim"), [(2, 1), (3, 1), (3, 2)])
def test_a_stranger_in_a_neighbours_place_is_noticed(
    tmp_path: Path, closing: Closing, size: int, victim: int, says: bytes | None
) -> None:
    world = closing(Attacked(tmp_path, size, victim, says))
    broken = world.expect(victim, "broken")
    assert broken["stranger_at"] == victim and broken["wrong"] is (len(says or b"") >= 32)
    assert "who connected from 127.0.0.1:" in broken["evidence"]
    assert world.reducers[victim].wait(PATIENCE_SECONDS) == 1
    for rank, messages in enumerate(world.messages):
        assert messages.empty() or messages.get()["t"] == "broken", rank


def test_a_stranger_that_is_gone_at_once_is_still_one(tmp_path: Path, closing: Closing) -> None:
    world = closing(Attacked(tmp_path, 3, 1, None, reset=True))
    broken = world.expect(1, "broken")
    assert (broken["stranger_at"], broken["wrong"]) == (1, False)


@pytest.mark.parametrize(("size", "odd"), [(2, 0), (2, 1), (3, 1), (4, 3)])
def test_who_knows_another_secret_is_a_stranger(
    tmp_path: Path, closing: Closing, size: int, odd: int
) -> None:
    world = closing(TwoSecrets(tmp_path, size, odd))
    broken = world.expect((odd + 1) % size, "broken")
    assert broken["stranger_at"] == (odd + 1) % size and broken["wrong"] is True


def test_a_reducer_listens_at_one_address_until_its_ring_is_up(
    tmp_path: Path, closing: Closing
) -> None:
    listened: list[tuple[str, int]] = []

    class Seen(World):
        def _await_listening(self, rank: int, port: int) -> None:
            super()._await_listening(rank, port)
            listened.extend(listening(self.reducers[rank].pid))
            assert (listened[-1], len(listened)) == (("127.0.0.1", port), rank + 1)

    world = closing(Seen(tmp_path, 3, "exact", secret=SECRET))
    assert len(listened) == 3
    assert not any(listening(reducer.pid) for reducer in world.reducers)


def listening(pid: int) -> list[tuple[str, int]]:
    found = psutil.Process(pid).net_connections(kind="tcp")
    return [(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN]


class Unforked(World):
    forks = False


def test_the_secret_is_not_where_others_could_read_it(tmp_path: Path, closing: Closing) -> None:
    secret = random.randbytes(32)
    world = closing(Unforked(tmp_path, 2, "exact", secret=secret))
    for reducer in world.reducers:
        process = psutil.Process(reducer.pid)
        shown = " ".join([*process.cmdline(), *process.environ().values()]).encode()
        assert secret not in shown and secret.hex().encode() not in shown
    for folder, _, names in os.walk(tmp_path):
        assert names in ([], ["children.sock"]), folder
