"""A daemon that takes long to end is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from elasticd.cli.daemons import name as name_process
from elasticd.client.connection import NobodyListens
from elasticd.client.restarting import restart
from elasticd.core.words.requests.nodes import Restart
from elasticd.settings.places import DAEMON_FILE
from elasticd.shell.control.queries import Queries
from tests.unit.client.fake_daemon import FakeDaemon


def test_it_is_said_what_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    ended = threading.Event()

    def tell(text: str) -> None:
        said.append(text)
        ended.set()

    def ending(request: dict[str, Any]) -> list[dict[str, Any]]:
        assert ended.wait(20)
        return []

    status: dict[str, Any] = {"jobs": [], "nodes": []}
    with FakeDaemon(tmp_path, {"restart": ending, "status": status}):
        restart(tmp_path, tell, silent_seconds=0.01)
    assert len(said) == 1 and "is ending; waiting up to" in said[0]


def test_one_that_is_beginning_anew_is_waited_for(tmp_path: Path) -> None:
    """As where two ask for it at once: its process is there, and its socket isn't yet."""
    name_process(tmp_path / DAEMON_FILE, psutil.Process())
    status: dict[str, Any] = {"jobs": [], "nodes": []}
    with contextlib.ExitStack() as begun:
        daemons: list[FakeDaemon] = []

        def tell(text: str) -> None:
            if not daemons:
                assert "runs and takes no connections" in text
                daemon = FakeDaemon(tmp_path, {"restart": [], "status": status})
                daemons.append(begun.enter_context(daemon))

        restart(tmp_path, tell, silent_seconds=0.0)
        (daemon,) = daemons
        assert [request["do"] for request in daemon.requests][:2] == ["status", "restart"]


def test_one_whose_process_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(NobodyListens):
        restart(tmp_path, pytest.fail, silent_seconds=0.0)


def test_nothing_is_answered_before_the_end(tmp_path: Path) -> None:
    """Else the daemon would wait for another request, and say that none came."""

    async def main() -> None:
        asked: list[str] = []

        async def begin() -> None:
            asked.append("again")

        desk = cast(Any, SimpleNamespace(_restart=begin))
        answering = asyncio.ensure_future(Queries.restart(desk, Restart(), cast(Any, None)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asked == ["again"] and not answering.done()
        answering.cancel()

    asyncio.run(main())
