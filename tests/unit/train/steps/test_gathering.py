"""Every member has every member's bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from elasticd.train.steps.gathering import Gathering
from elasticd.train.world import TrainerWorld
from tests.unit.train.cohort import Cohort, spec

MESSAGES = {
    "a": b"",
    "b": bytes(range(256)) + b"\xff" * 7 + bytes(5),
    "c": random.Random(1).randbytes((3 << 20) + 4),
}


@pytest.mark.parametrize("names", ["ab", "bca"])
def test_messages_come_as_they_were_sent(names: str) -> None:
    def script(seat: Any) -> list[bytes]:
        world = seat.take()
        assert isinstance(world, TrainerWorld)
        return Gathering(seat, world, 1).messages(MESSAGES[seat.name])

    results = Cohort(spec(), script, random.Random(0)).run(list(names)).values()
    assert [result.error for result in results] == [None] * len(names)
    for result in results:
        assert result.value == [MESSAGES[name] for name in names]
