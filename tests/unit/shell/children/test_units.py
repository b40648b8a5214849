"""One process of a unit: what is told of one that is late."""

from __future__ import annotations

import asyncio
import signal

import pytest

from elasticd.shell.children.units import RunningUnit
from elasticd.supervision import machine
from elasticd.supervision.unit import Unit

WAIT = 20.0


@pytest.mark.parametrize("late", [True, False])
def test_that_it_was_not_up_in_time_is_known_until_it_has_ended(late: bool) -> None:
    async def story() -> None:
        signals = asyncio.Queue[int]()
        seconds = 0.01 if late else 60.0
        unit = Unit(name="trainer 7", command=("trainer",), start_timeout_seconds=seconds)
        one = RunningUnit(unit, signals.put_nowait)
        one.tell(machine.UnitStarted())
        assert one.late_seconds == 0.0
        if not late:
            one.tell(machine.StopUnit())
        async with asyncio.timeout(WAIT):
            assert await signals.get() == signal.SIGTERM
        assert one.late_seconds == (seconds if late else 0.0)
        one.tell(machine.Exited(-signal.SIGTERM))
        assert one.late_seconds == 0.0

    asyncio.run(story())
