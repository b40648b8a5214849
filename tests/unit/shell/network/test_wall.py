"""A machine that lets nothing out blames itself, and no peer."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable, Coroutine, Iterable
from ipaddress import IPv4Network
from typing import Any

import pytest

from elasticd.shell.network import dialling, transfer
from elasticd.shell.network.wall import BY_HAND, CURE, LASTING_SECONDS, REFUSALS, Wall, own_networks
from tests.ports import free_address
from tests.unit.shell.network.daemons import Daemon, running, until

Run = Callable[[Coroutine[Any, Any, None]], None]
NEAR = "10.0.0.2:7070"


def wall(
    system: str = "darwin",
    step: float = LASTING_SECONDS,
    networks: Callable[[], Iterable[IPv4Network]] = lambda: [IPv4Network("10.0.0.0/24")],
) -> Wall:
    """``step``: what a clock shows more each time somebody looks at it."""
    clock = itertools.count(0.0, step)
    return Wall(system, networks, lambda: next(clock))


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
    told = [found.met(address, seconds) for _ in range(REFUSALS)]
    assert told == [False] * (REFUSALS - 1) + [is_here]
    assert found.told() == ([f"{address}: {CURE}"] if is_here else [])


def test_the_cure_begins_with_what_helps_surely_and_ends_with_what_may_not() -> None:
    """A permission that is on may be refused all the same; a session may outlive its terminal."""
    ways = ["sudo elasticctl service install", BY_HAND, "firewall", "System Settings", "may not"]
    places = [CURE.index(way) for way in ways]
    assert places == sorted(places) and "not tmux, screen or nohup" in BY_HAND


@pytest.mark.parametrize(
    ("networks", "is_here"),
    [(["169.254.0.0/16", "10.0.0.0/24"], False), (["169.254.0.0/16", "127.0.0.0/8"], True)],
)
def test_a_cable_that_only_the_peer_has_is_no_wall(networks: list[str], is_here: bool) -> None:
    """Both have given themselves an address there, each at a cable to somebody else."""
    found = wall(networks=lambda: map(IPv4Network, networks))
    told = [found.met("169.254.9.9:7070", 0.003) for _ in range(REFUSALS)]
    assert told[-1] == bool(found.told()) == is_here


def test_it_is_over_when_somebody_answers_or_fails_otherwise() -> None:
    found = wall()
    for over in (lambda: found.passed(NEAR), lambda: found.met(NEAR, 5.0)):
        assert [found.met(NEAR, 0.0) for _ in range(REFUSALS)][-1]
        over()
        assert found.told() == [] and not found.met(NEAR, 0.0)
        found.passed(NEAR)


def test_a_peer_that_is_off_is_refused_now_and_then_and_that_is_nobodys_doing() -> None:
    """The first packet behind a question that nobody answered; then its host is down."""
    found = wall()
    for _ in range(20):
        assert not found.met(NEAR, 0.0) and not found.told()
        found.passed(NEAR)
    quick = wall(step=0.01)
    assert not any(quick.met(NEAR, 0.0) for _ in range(20)) and not quick.told()


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
        a.peers._gate.wall = wall(networks=own_networks)
        async with running(a, b):
            await until(a.peers.walled)
            assert a.peers.walled() == [f"{b.address}: {CURE}"]
            assert CURE in a.peers.complain.last_reason
            refuses.clear()
            await a.until_seen("up", "b", "boot-1")
            assert a.peers.walled() == []
            await asyncio.sleep(0)

    run(main())


def test_nothing_is_said_of_an_address_that_is_dialled_no_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*words: Any) -> Any:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(transfer, "connect", refused)
    monkeypatch.setattr(dialling, "FORGET_SECONDS", 0.0)
    address = free_address()

    async def main() -> None:
        a = Daemon("a")
        found = a.peers._gate.wall = wall(networks=own_networks)
        for _ in range(REFUSALS):
            found.met(address, 0.0)
        assert a.peers.walled()
        async with running(a):
            a.peers.may_be_at([address])
            await until(lambda: not a.peers.dialled())
            assert a.peers.walled() == []

    run(main())
