from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.unit.client.fake_daemon import PROGRAM, FakeDaemon
from tests.unit.shell.control.welcoming import Host

STATUS: dict[str, Any] = {
    "cluster": "local",
    "view": {"epoch": 3, "leader": "node-0", "members": ["node-0", "node-2"]},
    "nodes": [
        {
            "id": "node-0",
            "address": "127.0.0.1:7070",
            "state": "alive",
            "pid": 4100,
            "chip": "M4 Max",
            "memory_bytes": 68719476736,
            "version": "0.1.0",
        },
        {
            "id": "node-1",
            "address": "127.0.0.1:7071",
            "state": "dead",
            "pid": None,
            "chip": None,
            "memory_bytes": 0,
            "version": None,
        },
    ],
    "jobs": [
        {
            "id": "byte-lm-1-k3f9",
            "name": "byte-lm",
            "state": "running",
            "reason": None,
            "generation": 4,
            "step": 120,
            "steps": 200,
            "loss": 2.134567,
            "steps_per_second": 3.1,
            "global_batch": 64,
            "micro_batch": 8,
            "recoveries": 2,
            "lost_steps": 0,
            "exact": True,
            "bytes_per_step": 2048,
            "fast_bytes_per_step": 1365,
            "digest": "ab12",
            "digest_step": 120,
            "ranks": [
                {
                    "rank": 0,
                    "node": "node-0",
                    "pid": 4210,
                    "reducer_pid": 4211,
                    "step": 120,
                    "grains": 4,
                    "active_bytes": 3 << 29,
                    "cached_bytes": 0,
                    "peak_bytes": 3 << 30,
                },
                {
                    "rank": 1,
                    "node": "node-2",
                    "pid": 4310,
                    "reducer_pid": None,
                    "step": 120,
                    "grains": 4,
                },
            ],
        },
        {
            "id": "digits-2-aaaa",
            "name": "digits",
            "state": "failed",
            "reason": "ValueError: no",
            "generation": 1,
            "step": 0,
            "steps": 10,
            "loss": None,
            "steps_per_second": 0.0,
            "global_batch": 8,
            "micro_batch": 8,
            "recoveries": 0,
            "lost_steps": 0,
            "exact": True,
            "bytes_per_step": 0,
            "digest": None,
            "digest_step": None,
            "ranks": [],
        },
    ],
}


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ELASTICD_HOME", "ELASTICD_DEBUG", "FORCE_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        patch.setenv("HOME", str(tmp_path / "user"))
        patch.setenv("COLUMNS", "120")
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def daemon() -> Iterator[Callable[..., Any]]:
    """``daemon(home, answers)`` is a fake daemon that serves until the test ends."""
    with ExitStack() as running:
        yield lambda home, answers: running.enter_context(FakeDaemon(home, answers))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A node that lets others in, in a thread."""
    found, ready, loop = Host(tmp_path / "host"), threading.Event(), asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with found.listening():
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    yield found
    loop.call_soon_threadsafe(done.set)
    thread.join()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def status() -> dict[str, Any]:
    return STATUS


@pytest.fixture
def fake_program() -> list[str]:
    """The command line of a fake daemon in a process of its own."""
    return [sys.executable, str(PROGRAM)]


@pytest.fixture
def ctl(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """``ctl("jobs", …)`` runs elasticctl here, which looks more often than for people; returns exit
    code, stdout, stderr.
    """
    for module in ("silence", "watch", "nodes"):
        monkeypatch.setattr(f"elasticd.cli.{module}.POLL_SECONDS", 0.02)
    from elasticd.cli.entry import run

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call
