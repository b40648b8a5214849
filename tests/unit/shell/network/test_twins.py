"""Two machines with the papers of one node: one of them is kept, and people are told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from elasticd.shell.network import dialling
from elasticd.shell.network.hello import Hello
from elasticd.shell.network.twins import (
    CURE,
    HOLD_SECONDS,
    QUIET_SECONDS,
    RECENT_SECONDS,
    RefusedTwin,
    Twins,
)
from elasticd.types import NodeId
from tests.unit.shell.network.daemons import Daemon, Run, running, until

ME, B = NodeId("a"), NodeId("b")
FIRST, SECOND, THIRD = "10.0.0.2:7400", "10.0.0.5:7400", "10.0.0.9:7400"
TWO = f"two machines are b: the one at {FIRST} is taken, the one at {SECOND} is not. {CURE}"
OTHER_WAY = f"two machines are b: the one at {SECOND} is taken, the one at {FIRST} is not. {CURE}"


class Seen:
    """Who says hello, one after the other, and is connected if it may be."""

    def __init__(self) -> None:
        self.now = 0.0
        self.twins = Twins(lambda: self.now)
        self.connected: str | None = None

    def hello(self, boot: str, address: str = FIRST) -> bool:
        """Whether it is taken."""
        try:
            self.twins.admit(Hello(B, boot, address, (address,)), self.connected)
        except RefusedTwin:
            return False
        self.connected = boot
        return True

    def told(self) -> list[str]:
        return self.twins.told(ME, "10.0.0.1:7400")

    def quarrel(self, second: str = SECOND, kept: str = "boot-1") -> None:
        """Of boot-1 and boot-2, which take each other's place."""
        while self.hello("boot-1") and self.hello("boot-2", second):
            assert self.now < RECENT_SECONDS + 10.0
            self.now += 0.1
        assert self.connected == kept


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_two_runs_that_take_each_others_place_are_two_machines(seen: Seen) -> None:
    seen.quarrel()
    assert seen.told() == [TWO]
    assert not seen.hello("boot-2", SECOND) and seen.hello("boot-1")


@pytest.mark.parametrize("restarts", [2, 20])
def test_a_daemon_that_is_started_again_and_again_is_one(seen: Seen, restarts: int) -> None:
    for number in range(restarts):
        assert seen.hello(f"boot-{number}")
    assert seen.told() == []


def test_what_was_on_its_way_when_a_daemon_ended_is_no_second_machine(seen: Seen) -> None:
    for boot in ("boot-1", "boot-2", "boot-1", "boot-2", "boot-2"):
        assert seen.hello(boot)
    assert seen.told() == []


def test_one_that_comes_back_alone_is_not_enough(seen: Seen) -> None:
    """The other is started again and again, and may be the same machine."""
    for boot in ("boot-1", "boot-2", "boot-1", "boot-3", "boot-1"):
        assert seen.hello(boot, FIRST if boot == "boot-1" else SECOND)
    assert seen.told() == []
    assert seen.hello("boot-3", SECOND) and seen.hello("boot-1")
    assert seen.told() == [TWO]


def test_returns_of_long_ago_do_not_count(seen: Seen) -> None:
    for boot in ("boot-1", "boot-2", "boot-1", "boot-2", "boot-1", "boot-2"):
        assert seen.hello(boot) and seen.told() == []
        seen.now += RECENT_SECONDS


@pytest.mark.parametrize("connected", ["boot-1", None])
def test_the_one_that_is_kept_may_be_started_again(seen: Seen, connected: str | None) -> None:
    seen.quarrel()
    seen.connected = connected
    assert seen.hello("boot-3") and not seen.hello("boot-2", SECOND)
    assert seen.told() == [TWO]


def test_the_one_that_is_refused_may_not(seen: Seen) -> None:
    seen.quarrel()
    assert not seen.hello("boot-3", SECOND)
    assert seen.told() == [TWO]


def test_a_restart_of_which_nothing_shows_whose_it_is_is_taken_after_a_while(seen: Seen) -> None:
    """All have the same address, as elasticd.toml was copied, too."""
    seen.quarrel(FIRST)
    assert not seen.hello("boot-3")
    seen.connected = None
    assert not seen.hello("boot-3")
    seen.now += HOLD_SECONDS / 2
    assert not seen.hello("boot-3")
    seen.now += HOLD_SECONDS / 2
    assert seen.hello("boot-3") and seen.told() == []


def test_what_comes_back_in_time_keeps_its_place(seen: Seen) -> None:
    seen.quarrel()
    seen.connected = None
    assert not seen.hello("boot-2", SECOND)
    seen.now += HOLD_SECONDS
    assert seen.hello("boot-1")
    assert not seen.hello("boot-2", SECOND)
    seen.connected = None
    assert not seen.hello("boot-2", SECOND)


def test_the_other_takes_the_place_of_one_that_stays_away(seen: Seen) -> None:
    seen.quarrel()
    seen.connected = None
    assert not seen.hello("boot-2", SECOND)
    seen.now += HOLD_SECONDS
    assert seen.hello("boot-2", SECOND) and seen.told() == []


def test_a_quarrel_ends_when_nobody_is_refused_any_more(seen: Seen) -> None:
    seen.quarrel()
    seen.now += QUIET_SECONDS
    assert seen.told() == []
    assert seen.hello("boot-3", SECOND), "it has another address now"


def test_a_machine_that_is_started_without_end_leaves_nothing_behind(seen: Seen) -> None:
    seen.quarrel()
    for number in range(3, 100):
        assert not seen.hello(f"boot-{number}", SECOND)
    assert seen.told() == [TWO] and seen.hello("boot-1")
    assert len(seen.twins._runs[B]) < 10


@pytest.mark.parametrize("before", [True, False])
def test_all_keep_the_one_that_others_have_taken(seen: Seen, before: bool) -> None:
    """Who is started later may meet the other one first."""
    if before:
        assert list(seen.twins.taken([SECOND, THIRD])) == []
        seen.quarrel(kept="boot-2")
    else:
        seen.quarrel()
        assert list(seen.twins.taken([FIRST, SECOND])) == [], "that says nothing"
        assert list(seen.twins.taken([SECOND, THIRD])) == [B]
    assert seen.told() == [OTHER_WAY]
    assert not seen.hello("boot-1") and seen.hello("boot-2", SECOND)


def test_who_has_been_there_for_long_goes_by_who_came_first(seen: Seen) -> None:
    """Else two that keep another one each would tell each other, and change."""
    seen.now = RECENT_SECONDS
    seen.quarrel()
    assert list(seen.twins.taken([SECOND])) == [] and seen.told() == [TWO]


@contextlib.asynccontextmanager
async def two() -> AsyncIterator[tuple[Daemon, Daemon, Daemon]]:
    """Daemon a, and two that are b, of which a has kept the first."""
    a = Daemon("a")
    first = Daemon("b", a.address)
    second = Daemon("b", a.address, boot="boot-2")
    async with running(a, first):
        await a.until_seen("up", "b", "boot-1")
        async with running(second):
            await until(lambda: a.peers.twins() and a.seen[-1] == ("up", "b", "boot-1"))
            a.seen.clear()
            try:
                yield a, first, second
            finally:  # nobody calls a daemon at the moment in which it stops to listen
                for daemon in (a, first, second):
                    await daemon.peers._dialler.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "REFUSED_SECONDS", 0.01)


@pytest.mark.usefixtures("hasty")
def test_two_daemons_of_one_id_do_not_take_turns(run: Run) -> None:
    async def main() -> None:
        async with two() as (a, first, second):
            before = a.peers.refusals.hellos
            await until(lambda: a.peers.refusals.hellos > before + 20)
            await until(second.peers.twins)
            assert a.seen == [] and a.peers.connected() == ["b"]
            assert a.peers.twins() == [
                f"two machines are b: the one at {first.address} is taken, the one at"
                f" {second.address} is not. {CURE}"
            ]
            assert second.peers.twins() == [
                f"two machines are b: this one at {second.address} and the one at"
                f" {first.address}. {CURE}"
            ]
            assert first.peers.twins() == []
            await first.peers.close()
            async with running(Daemon("b", a.address, own=first.address, boot="boot-3")):
                await a.until_seen("up", "b", "boot-3")

    run(main())


@pytest.mark.usefixtures("hasty")
def test_a_daemon_changes_to_the_one_that_others_reach(run: Run) -> None:
    async def main() -> None:
        async with two() as (a, _, second):
            a.peers.are_at((second.address,))
            await a.until_seen("up", "b", "boot-2")

    run(main())
