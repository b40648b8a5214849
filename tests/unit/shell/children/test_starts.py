"""Starts of children that hang, and those of whom somebody failed to hear."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import UserDict
from collections.abc import Callable, Coroutine, KeysView
from pathlib import Path
from typing import Any

import pytest

from elasticd.shell.children import server as module
from elasticd.shell.children.launch import Launch
from elasticd.shell.children.server import Child
from tests.unit.shell.children.test_server import PRELUDE, daemon

pytestmark = pytest.mark.process
Run = Callable[[Coroutine[Any, Any, None]], None]


class Environment(UserDict[str, str]):
    """``read`` is set when a process is about to be started with it."""

    def __init__(self) -> None:
        super().__init__()
        self.read = threading.Event()

    def keys(self) -> KeysView[str]:
        self.read.set()
        return super().keys()


def test_one_whose_start_hangs_until_all_have_ended_is_killed_when_it_runs(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.1)
    log, environment = tmp_path / "log", Environment()
    os.mkfifo(log)  # who opens it waits for a reader
    command = [sys.executable, "-c", "import time; time.sleep(60)"]

    async def main() -> None:
        async with daemon(tmp_path) as one:
            came = asyncio.create_task(
                one.spawn(Launch("trainer", command, tmp_path, log, environment))
            )
            await asyncio.to_thread(environment.read.wait, 60.0)
            await one.server.stop_all(0)
            assert not came.done() and one.server.children == ()
            reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
            try:
                child = await came
                assert await child.wait() == -signal.SIGKILL
                assert one.exits == [(child, -signal.SIGKILL)]
            finally:
                os.close(reader)

    run(main())


def test_a_child_is_watched_though_who_hears_of_its_start_fails(tmp_path: Path, run: Run) -> None:
    told: list[Any] = []
    command = [sys.executable, "-c", PRELUDE + 'connect().send({"t": "up"})\ntime.sleep(60)']

    def broken(child: Child) -> None:
        raise LookupError(child.pid)

    async def main() -> None:
        async with daemon(tmp_path) as one:
            asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(said))
            own = {"PATH": os.environ["PATH"]}
            launch = Launch("trainer", command, tmp_path, tmp_path / "log", own)
            one.server.spawn(lambda: launch, broken, told.append)
            child, _, _ = await one.messages.get()
            child.kill()
            assert await child.wait() == -signal.SIGKILL
        (said,) = told
        assert isinstance(said["exception"], LookupError)

    run(main())
