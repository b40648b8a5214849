"""An address is dialled for as long as it is to be, whatever goes wrong there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elasticd.shell import tasks
from elasticd.shell.network import transfer
from tests.unit.shell.network.daemons import Daemon, Run, running


def test_what_nobody_has_thought_of_loses_no_address(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, failures, told = transfer.connect, [LookupError(), UnicodeError()], list[str]()
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.001)

    async def surprised(*words: Any) -> Any:
        if failures:
            raise failures.pop()
        return await connect(*words)

    monkeypatch.setattr(transfer, "connect", surprised)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        b = Daemon("b")
        a = Daemon("a", b.address)
        async with running(b, a):
            await a.until_seen("up", "b", "boot-1")
            assert told == [f"dialling {b.address} failed, and is begun again"] * 2

    run(main())


def test_what_is_no_address_is_not_dialled(run: Run) -> None:
    async def main() -> None:
        a = Daemon("a", "mac-2..local:7070")
        async with running(a):
            assert a.peers.dialled() == []
            assert "mac-2..local:7070" in a.peers.complain.last_reason

    run(main())
