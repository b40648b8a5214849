"""What each address of a peer carries, measured on machines that were busy meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from elasticd.errors import OperationError
from elasticd.shell.network.minder import MEASUREMENTS, measure
from elasticd.shell.network.wires import PeerRun
from elasticd.types import NodeId

FIRST, SECOND = "10.0.0.2:7070", "10.0.1.2:7070"


class Line:
    """Fetches that carry much, but for the first ``busy`` ones of an address."""

    def __init__(self, busy: Mapping[str, int], dead: str = "") -> None:
        self.busy, self.dead = dict(busy), dead
        self.fetched = dict.fromkeys((FIRST, SECOND), 0)

    async def fetch(self, address: str, want: dict[str, Any], sink: int, most: int) -> int:
        await asyncio.sleep(0)
        self.fetched[address] += 1
        if address == self.dead:
            raise OperationError("nothing answers there")
        return 1 if self.fetched[address] <= self.busy.get(address, 0) else 1 << 40


def peer() -> PeerRun:
    return PeerRun(NodeId("node-1"), "a run", FIRST, (FIRST, SECOND))


def run(one: PeerRun, line: Line, waits_seconds: tuple[float, ...]) -> None:
    asyncio.run(measure(one, line.fetch, waits_seconds))


def test_an_address_that_was_measured_on_a_busy_machine_is_measured_again() -> None:
    one, line = peer(), Line({FIRST: MEASUREMENTS + 1})
    run(one, line, (0.0, 0.0, 0.0, 0.0))
    assert one.speeds[FIRST] > 1e9, "the ring would go past it for ever"
    assert line.fetched == {FIRST: MEASUREMENTS + 2, SECOND: MEASUREMENTS}


def test_what_stays_slow_is_not_measured_for_ever() -> None:
    one, line = peer(), Line({FIRST: 1000})
    run(one, line, (0.0, 0.0, 0.0))
    assert line.fetched == {FIRST: MEASUREMENTS + 3, SECOND: MEASUREMENTS}


def test_what_can_not_be_measured_is_left_alone() -> None:
    one, line = peer(), Line({}, dead=FIRST)
    run(one, line, (0.0, 0.0))
    assert FIRST not in one.speeds and line.fetched[FIRST] == MEASUREMENTS


def test_what_was_measured_is_not_measured_because_others_come() -> None:
    one, line = peer(), Line({})
    one.speeds[FIRST] = 1e12
    run(one, line, ())
    assert line.fetched == {FIRST: 0, SECOND: MEASUREMENTS}


def test_it_ends_with_the_peer() -> None:
    one, line = peer(), Line({FIRST: 1000})
    one.gone.set()
    run(one, line, (3600.0,))
    assert line.fetched[FIRST] == MEASUREMENTS
