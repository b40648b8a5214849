"""Daemons whose sockets have long paths are called by threads of one process, each its own."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from elasticd.client import connection
from elasticd.ipc.frames import FrameSocket

ROUNDS = 50


@pytest.mark.parametrize("connect", [connection._connected_at_once, FrameSocket.connect])
def test_each_thread_reaches_the_daemon_that_it_calls(
    tmp_path: Path, connect: Callable[[Path], Any]
) -> None:
    folder, called = os.getcwd(), list[tuple[Path, socket.socket]]()
    with contextlib.ExitStack() as opened:
        for number in range(8):
            home = tmp_path / f"{number}-{'x' * 100}"
            home.mkdir()
            listening = opened.enter_context(socket.socket(socket.AF_UNIX))
            with contextlib.chdir(home):
                listening.bind("d")
            listening.listen(ROUNDS)
            listening.setblocking(False)
            called.append((home / "d", listening))

        def call(path: Path, listening: socket.socket) -> None:
            for _ in range(ROUNDS):
                with contextlib.closing(connect(path)):
                    listening.accept()[0].close()  # raises where nobody has come

        with ThreadPoolExecutor(len(called)) as threads:
            for done in [threads.submit(call, *each) for each in called]:
                done.result()
    assert os.getcwd() == folder
