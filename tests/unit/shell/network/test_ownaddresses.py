"""Where a node is to be found, if its file leaves that to the daemon."""

from __future__ import annotations

import asyncio

import pytest

from elasticd.settings.config import NodeConfig
from elasticd.shell.network import ownaddresses
from elasticd.shell.network.ownaddresses import ALONE, AddressWatch

EVERYWHERE = NodeConfig(node_id="a", listen="0.0.0.0:7070")


def _with(*hosts: str) -> NodeConfig:
    return NodeConfig(
        node_id="a", listen="0.0.0.0:7070", advertise=tuple(f"{host}:7070" for host in hosts)
    )


def test_only_what_the_file_leaves_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownaddresses, "hosts", lambda: ("10.0.0.1", "192.168.1.5"))
    assert ownaddresses.found(EVERYWHERE) == _with("10.0.0.1", "192.168.1.5")
    for said in (_with("10.9.9.9"), NodeConfig(node_id="a", listen="10.0.0.1:7070")):
        assert ownaddresses.found(said) is said and not ownaddresses.are_found(said)
    monkeypatch.setattr(ownaddresses, "hosts", lambda: ())
    assert ownaddresses.found(EVERYWHERE) == _with(ALONE)


def _watch(settings: NodeConfig, looks: list[tuple[str, ...]]) -> AddressWatch:
    return AddressWatch(settings, lambda hosts: None, lambda: looks.pop(0))


def test_what_stays_counts_and_what_goes_does_not() -> None:
    a, b, c = "10.0.0.1", "10.0.0.2", "10.0.0.3"
    watch = _watch(_with(a), [(a,), (a, b), (a,), (a, c), (), (a, c, b), (b, c)])
    assert [watch.look() for _ in range(6)] == [()] * 6, "nothing is there twice"
    assert watch.look() == (b, c)


def test_who_could_not_be_reached_at_all_begins_anew_at_once() -> None:
    assert _watch(_with(ALONE), []).pause_seconds == 0.0
    assert _watch(_with("10.0.0.9"), []).pause_seconds == ownaddresses.AGAIN_SECONDS


def test_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> list[tuple[str, ...]]:
        came: list[tuple[str, ...]] = []
        watch = AddressWatch(_with(ALONE), came.append, lambda: ("10.0.0.1",))
        await asyncio.wait_for(watch.rounds(), 10)
        return came

    monkeypatch.setattr(ownaddresses, "LOOK_SECONDS", 0.001)
    assert asyncio.run(story()) == [("10.0.0.1",)]
