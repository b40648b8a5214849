"""A daemon that announces itself, and looks for members that it does not reach."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from elasticd.shell.network.bonjour import Announcement
from elasticd.shell.network.bonjourwatch import (
    LONGEST_SECONDS,
    LOOK_SECONDS,
    MOST_HINTS,
    BonjourWatch,
)
from elasticd.shell.network.dialling import FORGET_SECONDS


def announcement(name: str, *hosts: str) -> Announcement:
    return Announcement(name, "ab" * 16, False, hosts, 7070)


@dataclass
class FakeBonjour:
    """A network, and this machine's end of it."""

    others: dict[str, Announcement] = field(default_factory=dict)
    said: list[Announcement] = field(default_factory=list)
    on: list[tuple[str, ...]] = field(default_factory=list)
    asked: list[bool] = field(default_factory=list)
    closed: int = 0
    refuses: bool = False

    def opened(self, hosts: Sequence[str]) -> FakeBonjour:
        if self.refuses:
            raise OSError("no multicast")
        self.on.append(tuple(hosts))
        return self

    def announce(self, said: Announcement) -> None:
        self.said.append(said)

    def find(self, names: Collection[str], *, ask: bool) -> list[Announcement]:
        self.asked.append(ask)
        return [each for name, each in self.others.items() if name in names]

    def close(self) -> None:
        self.closed += 1


class Daemon:
    """What looks out, with a clock and a network of its own; all of 10.x is beside it."""

    def __init__(self) -> None:
        self.own: Announcement | None = announcement("me", "10.0.0.1")
        self.missing: list[str] = []
        self.dialled: list[list[str]] = []
        self.now = 100.0
        self.gone: set[str] = set()
        """Addresses that its machine lacks."""
        self.net = FakeBonjour()
        self.watch = BonjourWatch(
            lambda: self.own, lambda: self.missing, self._dial, self.net.opened,
            here=self._here, beside=_beside, clock=lambda: self.now,
        )  # fmt: skip

    def _dial(self, addresses: Iterable[str]) -> None:
        self.dialled.append(list(addresses))

    def _here(self, hosts: Iterable[str]) -> tuple[str, ...]:
        return tuple(host for host in hosts if host not in self.gone)

    def look(self) -> None:
        asyncio.run(self.watch.look())


def _beside(hosts: Iterable[str], addresses: Collection[str]) -> list[str]:
    assert tuple(addresses) == ("10.0.0.1",), "those that it announces"
    return [host for host in hosts if host.startswith("10.")]


def test_it_says_where_it_is_and_again_when_that_changes() -> None:
    daemon = Daemon()
    daemon.look()
    daemon.look()
    assert daemon.net.said == [daemon.own] and daemon.net.on == [("10.0.0.1",)]
    daemon.own = announcement("me", "10.0.0.2")
    daemon.look()
    assert daemon.net.said[1:] == [daemon.own] and daemon.net.closed == 1
    daemon.own = None  # others reach it no more
    daemon.look()
    assert daemon.net.closed == 2 and len(daemon.net.said) == 2


def test_a_network_that_comes_late_or_back_is_listened_on() -> None:
    """A Mac takes addresses away with a link: what has listened there hears no more."""
    daemon = Daemon()
    daemon.own = announcement("me", "10.0.0.1", "10.1.0.1")
    daemon.gone = {"10.1.0.1"}
    daemon.look()
    for gone, opened in ((set[str](), 2), ({"10.1.0.1"}, 3), (set[str](), 4)):
        daemon.gone = gone
        daemon.look()
        daemon.look()
        assert len(daemon.net.on) == len(daemon.net.said) == opened
        assert daemon.net.closed == opened - 1


def test_who_is_missing_is_dialled_where_it_says() -> None:
    daemon = Daemon()
    daemon.net.others = {"b": announcement("b", "10.0.0.7"), "c": announcement("c", "10.0.0.8")}
    daemon.look()
    assert daemon.dialled == [] and daemon.net.asked == [], "nobody is missing"
    daemon.missing = ["b", "d"]
    daemon.look()
    assert daemon.dialled == [["10.0.0.7:7070"]]


def test_nobody_has_it_dial_what_is_not_beside_it() -> None:
    daemon = Daemon()
    daemon.missing = ["b"]
    daemon.net.others = {"b": announcement("b", "192.0.2.1", "10.0.0.7")}
    daemon.look()
    assert daemon.dialled == [["10.0.0.7:7070"]]


def test_what_lies_about_addresses_has_it_dial_few() -> None:
    """And others are heard of again when those are forgotten."""
    daemon = Daemon()
    daemon.missing = ["b"]
    for number in range(MOST_HINTS + 40):
        daemon.net.others = {"b": announcement("b", f"10.1.{number // 250}.{number % 250}")}
        daemon.look()
    assert len({each for every in daemon.dialled for each in every}) == MOST_HINTS
    daemon.now += FORGET_SECONDS
    daemon.net.others = {"b": announcement("b", "10.0.0.7")}
    daemon.look()
    assert daemon.dialled[-1] == ["10.0.0.7:7070"]


def test_a_network_is_asked_ever_less_for_who_stays_away() -> None:
    """But hears it at once when another one goes."""
    daemon = Daemon()
    daemon.missing = ["b"]
    for _ in range(round(10 * LONGEST_SECONDS / LOOK_SECONDS)):
        daemon.look()
        daemon.now += LOOK_SECONDS
    assert daemon.net.asked[0] and 10 <= sum(daemon.net.asked) <= 20
    daemon.missing = ["b", "c"]
    daemon.look()
    assert daemon.net.asked[-1]
    daemon.missing = ["b"]
    daemon.look()
    assert not daemon.net.asked[-1], "who comes back is no news of the rest"


def test_a_network_that_refuses_is_tried_again() -> None:
    daemon = Daemon()
    daemon.net.refuses = True
    with pytest.raises(OSError, match="no multicast"):
        daemon.look()
    daemon.net.refuses = False
    daemon.look()
    assert daemon.net.said == [daemon.own]


def test_at_its_end_it_says_so() -> None:
    daemon = Daemon()

    async def whole() -> None:
        task = asyncio.create_task(daemon.watch.rounds())
        while not daemon.net.said:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(whole())
    assert daemon.net.closed == 1
