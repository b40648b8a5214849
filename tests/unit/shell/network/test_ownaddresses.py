"""Where a node is to be found, if its file leaves that to the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from elasticd.settings.config import NodeConfig
from elasticd.shell.network import ownaddresses
from elasticd.shell.network.interfaces import Kind
from elasticd.shell.network.ownaddresses import (
    ALONE,
    FORGIVEN_LOOKS,
    MOST,
    MOST_REMEMBERED,
    AddressWatch,
    KnownHardware,
    OwnHosts,
    are_found,
)

EVERYWHERE = NodeConfig(node_id="a", listen="0.0.0.0:7070")
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Bench:
    """A machine whose interfaces are what they are called after."""

    def __init__(self, **addresses: str) -> None:
        self.there: dict[str, list[str]] = {name: [host] for name, host in addresses.items()}
        self.asked = 0
        self.own = OwnHosts(KnownHardware(self), lambda: self.there)

    def kinds(self, names: Sequence[str]) -> Mapping[str, Kind] | None:
        self.asked += 1
        kinds: dict[str, Kind] = {"t": "thunderbolt", "e": "ethernet", "w": "wifi"}
        return {name: kinds[name[0]] for name in names}


class Hanging(Bench):
    """As a Mac whose tool hangs or fails so many times."""

    def __init__(self, failures: int, **addresses: str) -> None:
        super().__init__(**addresses)
        self.failures = failures

    def kinds(self, names: Sequence[str]) -> Mapping[str, Kind] | None:
        known = super().kinds(names)
        return None if self.asked <= self.failures else known


def _with(*hosts: str) -> NodeConfig:
    return NodeConfig(
        node_id="a", listen="0.0.0.0:7070", advertise=tuple(f"{host}:7070" for host in hosts)
    )


def test_only_what_the_file_leaves_open_is_found() -> None:
    own = Bench(w0="192.168.1.5", e0=A).own
    assert own.fill_in(EVERYWHERE) == _with(A, "192.168.1.5")
    for said in (_with("10.9.9.9"), NodeConfig(node_id="a", listen="10.0.0.1:7070")):
        assert own.fill_in(said) is said and not are_found(said)
    assert Bench().own.fill_in(EVERYWHERE) == _with(ALONE)


def test_a_tool_that_failed_is_asked_again_at_the_next_look_and_its_answer_kept() -> None:
    bench = Hanging(1, e0=A, t0=B)
    assert bench.own.look() == (A, B)  # by name: nothing is known of them
    for _ in range(4):
        assert bench.own.look() == (B, A)
    assert bench.asked == 2


def test_one_that_never_answers_is_asked_less_and_less_often() -> None:
    bench = Hanging(1000, e0=A, t0=B)
    for _ in range(FORGIVEN_LOOKS):
        assert bench.own.look() == (A, B)
    assert 10 < bench.asked < 25


def test_until_it_answers_again_the_last_answer_holds() -> None:
    bench = Hanging(0, e0=A, t0=B)
    assert bench.own.look() == (B, A)
    bench.failures = 2
    bench.there["w0"] = [C]
    assert bench.own.look()[0] == B
    bench.own.look()
    assert bench.own.look() == (B, A, C)


def test_that_another_address_is_the_best_is_told() -> None:
    told: list[tuple[str, ...]] = []
    watch = AddressWatch((A, B), told.append, lambda told: ())
    watch.seen((A, B))
    watch.seen((B,))
    watch.seen((B, A))
    watch.seen((B, A))
    assert told == [(B, A)]
    watch.seen((B, A))
    assert told == [(B, A)]


def test_what_interfaces_are_made_of_is_asked_when_there_are_others() -> None:
    bench = Bench(e0=A)
    for _ in range(3):
        assert bench.own.look() == (A,)
    bench.there["e0"] = [B]
    assert bench.own.look() == (B,) and bench.asked == 1
    bench.there["t0"] = [C]
    assert bench.own.look() == (C, B) and bench.asked == 2


def test_an_address_that_nobody_gave_counts_on_a_thunderbolt_cable_or_alone() -> None:
    bench = Bench(e0="169.254.1.1", w0="169.254.1.2")
    assert bench.own.look() == ("169.254.1.1", "169.254.1.2")
    bench.there["w0"] = [A]
    assert bench.own.look() == (A,)
    bench.there["t0"] = ["169.254.1.3"]
    assert bench.own.look() == ("169.254.1.3", A)


def test_of_too_many_those_stay_that_were_told() -> None:
    bench = Bench(**{f"e{n}": f"10.0.0.{n}" for n in range(1, 2 * MOST)})
    told = bench.own.look()
    assert len(told) == MOST
    bench.there["t0"] = ["10.9.0.1"]
    assert bench.own.look(told) == told
    del bench.there["e1"]
    assert bench.own.look(told) == ("10.9.0.1", *(host for host in told if host != "10.0.0.1"))


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(A,), (A,)], []),
        ([(A, B), (A, B)], [(A, B)]),
        ([(B, A), (B, A), (A, B)], [(B, A)]),  # the order of a moment is no news
        ([(A, B), (A,), (A, B), (A,)], []),  # what comes has to stay
        ([(A, B), (A, B), (A,), (A, B), (A,), (A, B)], [(A, B)]),  # what goes has to stay away
        ([(A, B), (A, B), (B,), (B,)], [(A, B), (B,)]),
        ([(A, B), (A, C), (A, B, C)], [(A, C)]),
        ([(), (), (A,)], []),
    ],
)
def test_what_the_others_are_told(
    looks: list[tuple[str, ...]], told: list[tuple[str, ...]]
) -> None:
    heard: list[tuple[str, ...]] = []
    watch = AddressWatch((A,), heard.append, lambda known: ())
    for found in looks:
        watch.seen(found)
    assert heard == told


def changes(watch: AddressWatch, *looks: tuple[str, ...]) -> int:
    """How many of these looks the others are told of."""
    count = 0
    for found in looks:
        before = watch.told
        watch.seen(found)
        count += watch.told != before
    return count


def test_who_comes_and_goes_again_and_again_has_to_be_there_longer() -> None:
    watch = AddressWatch((A,), lambda hosts: None, lambda known: ())
    come, gone = (A, B), (A,)
    there = []
    for _ in range(8):
        there.append(0)
        while watch.told != come:
            watch.seen(come)
            there[-1] += 1
        assert changes(watch, gone, gone) == 1
    assert there == [2, 4, 8, 16, 32, 64, 64, 64]
    assert changes(watch, *[come, come, come, gone] * 100) == 0, "it never stays"
    assert changes(watch, (A, C), (A, C)) == 1, "that is another one"
    assert changes(watch, (A, C), (A, B, C), (A, B, C)) == 0
    for _ in range(FORGIVEN_LOOKS):
        watch.seen((A, C))
    assert changes(watch, (A, B, C), (A, B, C)) == 1


def test_the_only_address_that_there_is_is_told_at_once() -> None:
    watch = AddressWatch((A,), lambda hosts: None, lambda known: ())
    for _ in range(5):
        assert changes(watch, (B,), (B,)) == 1 and watch.told == (B,)
        assert changes(watch, (A,), (A,)) == 1 and watch.told == (A,)


def test_what_is_remembered_of_those_that_went_has_an_end() -> None:
    watch = AddressWatch((A,), lambda hosts: None, lambda known: ())
    for number in range(2 * MOST_REMEMBERED):
        host = f"10.1.0.{number}"
        assert changes(watch, (A, host), (A, host), (A,), (A,)) == 2
    assert len(watch._went) == MOST_REMEMBERED


def test_who_had_no_network_at_first() -> None:
    heard: list[tuple[str, ...]] = []
    watch = AddressWatch((ALONE,), heard.append, lambda known: ())
    for found in ((), (A,), (A,), (A,)):
        watch.seen(found)
    assert heard == [(A,)]


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> list[tuple[str, ...]]:
        done = asyncio.Event()
        heard: list[tuple[str, ...]] = []
        looks: list[tuple[str, ...] | None] = [(A, B), None, (A, B)]

        def look(told: Sequence[str]) -> tuple[str, ...]:
            found = looks.pop(0) if looks else (A, B)
            if found is None:
                raise OSError("no interfaces")
            return found

        def changed(hosts: tuple[str, ...]) -> None:
            heard.append(hosts)
            done.set()

        watching = asyncio.create_task(AddressWatch((A,), changed, look).rounds())
        async with asyncio.timeout(30):
            await done.wait()
        watching.cancel()
        return heard

    monkeypatch.setattr(ownaddresses, "LOOK_SECONDS", 0.001)
    assert asyncio.run(story()) == [(A, B)]
