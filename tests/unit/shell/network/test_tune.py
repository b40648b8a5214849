"""How soon TCP gives up a peer that says nothing, on Linux and on macOS."""

from __future__ import annotations

import socket
import sys
from typing import Any, cast

import pytest

from elasticd.shell.network.transfer import SILENT_SECONDS, tune


class Options:
    """A connection that notes what is set of TCP, and may refuse one of it."""

    def __init__(self, refuses: int = -1) -> None:
        self.refuses, self.found = refuses, dict[int, int]()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if option == self.refuses:
            raise OSError(42, "Protocol not available")
        if level == socket.IPPROTO_TCP:
            self.found[option] = value


@pytest.mark.parametrize(
    ("here", "idle", "dropped", "limit"),
    [("darwin", 0x10, 0x80, SILENT_SECONDS), ("linux", 4, 18, 1000 * SILENT_SECONDS)],
)
def test_each_system_is_told_in_its_own_words(
    here: str, idle: int, dropped: int, limit: int
) -> None:
    told = Options()
    tune(cast(Any, told), here)
    assert (told.found[idle], told.found[dropped]) == (2, limit)
    assert told.found[socket.TCP_NODELAY] == 1
    other = Options(refuses=dropped)
    tune(cast(Any, other), here)
    assert other.found == {o: v for o, v in told.found.items() if o != dropped}


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_linux_takes_them() -> None:
    with socket.socket() as connection:
        tune(connection)
        limit = connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT"))  # noqa: B009
        assert limit == 1000 * SILENT_SECONDS
        assert connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE")) == 2  # noqa: B009
