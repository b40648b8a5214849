"""A machine that lets nothing out blames itself, and no peer."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Network
from typing import Any

import pytest

from elasticd.shell.network import transfer
from elasticd.shell.network.wall import CURE, Wall, own_networks
from tests.unit.shell.network.daemons import Daemon, running, until

Run = Callable[[Coroutine[Any, Any, None]], None]
NEAR = "10.0.0.2:7070"


def wall(system: str = "darwin") -> Wall:
    return Wall(system, lambda: [IPv4Network("10.0.0.0/24")])


@pytest.mark.parametrize(
    ("system", "address", "seconds", "is_here"),
    [
        ("darwin", NEAR, 0.003, True),
        ("darwin", NEAR, 3.0, False),  # nobody answered there
        ("darwin", "10.0.1.2:7070", 0.003, False),  # a router may say that
        ("darwin", "mac-2.local:7070", 0.003, False),
        ("linux", NEAR, 0.003, False),
    ],
)
def test_what_is_its_own_doing(system: str, address: str, seconds: float, is_here: bool) -> None:
    found = wall(system)
    assert found.met(address, seconds) == is_here
    assert found.told() == ([f"{address}: {CURE}"] if is_here else [])


def test_it_is_over_when_somebody_answers_or_fails_otherwise() -> None:
    found = wall()
    found.met(NEAR, 0.0)
    found.passed(NEAR)
    assert found.told() == []
    found.met(NEAR, 0.0)
    found.met(NEAR, 5.0)
    assert found.told() == []


def test_this_machines_networks() -> None:
    assert IPv4Network("127.0.0.0/8") in own_networks()


def test_a_daemon_that_is_walled_in_says_so_until_it_is_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, refuses = transfer.connect, [True]

    async def refused(*words: Any) -> Any:
        if refuses:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        return await connect(*words)

    monkeypatch.setattr(transfer, "connect", refused)

    async def main() -> None:
        b = Daemon("b")
        a = Daemon("a", b.address)
        a.peers._gate.wall = Wall("darwin", own_networks)
        async with running(a, b):
            await until(a.peers.walled)
            assert a.peers.walled() == [f"{b.address}: {CURE}"]
            assert CURE in a.peers.complain.last_reason
            refuses.clear()
            await a.until_seen("up", "b", "boot-1")
            assert a.peers.walled() == []
            await asyncio.sleep(0)

    run(main())
