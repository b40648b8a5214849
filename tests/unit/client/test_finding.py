"""Looking by Bonjour for the node that made a token, among liars."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from elasticd.client.finding import MOST_TRIED, issuers
from elasticd.shell.network.bonjour import Announcement

CLUSTER = secrets.token_hex(32)


@dataclass
class FakeNetwork:
    """What is announced there, one more each time that somebody looks."""

    later: list[Announcement]
    said: dict[str, Announcement] = field(default_factory=dict)
    closed: bool = False

    def opened(self, hosts: Sequence[str]) -> FakeNetwork:
        return self

    def browse(self) -> FakeNetwork:
        return self

    def so_far(self) -> set[str]:
        if self.later:
            each = self.later.pop(0)
            self.said[each.name] = each
        return set(self.said)

    def find(self, names: Collection[str], *, ask: bool) -> list[Announcement]:
        return [self.said[name] for name in names]

    def close(self) -> None:
        self.closed = True

    def look(self, seconds: float) -> Generator[str, None, None]:
        return issuers(CLUSTER, ["10.0.0.1"], seconds, self.opened, lambda hosts, own: hosts)


def announcement(number: int, *, hosts: int = 1) -> Announcement:
    """Of who says that it makes members."""
    where = tuple(f"10.0.{number}.{host}" for host in range(hosts))
    return Announcement(f"{number:032x}", CLUSTER[:32], True, where, 7070)


def test_who_lies_first_does_not_hide_who_speaks_later() -> None:
    net = FakeNetwork([announcement(1), announcement(2)])
    found = net.look(60.0)
    assert [next(found), next(found)] == ["10.0.1.0:7070", "10.0.2.0:7070"]
    assert not net.closed
    found.close()
    assert net.closed


def test_liars_have_few_addresses_tried() -> None:
    net = FakeNetwork([announcement(number, hosts=8) for number in range(64)])
    found = list(net.look(60.0))
    assert len(found) == len(set(found)) == MOST_TRIED and net.closed


def test_it_ends_where_nobody_speaks() -> None:
    net = FakeNetwork([])
    assert not list(net.look(0.0)) and net.closed
