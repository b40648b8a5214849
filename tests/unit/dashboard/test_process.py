"""The page's process: when it ends, and by which names it may be asked for."""

from __future__ import annotations

import pytest

from elasticd.client.connection import PROBE_SECONDS
from elasticd.dashboard.__main__ import (
    IDLE_SECONDS,
    LIFE_SECONDS,
    LOOK_ANSWER_SECONDS,
    _names,
    is_over,
)
from elasticd.dashboard.live import LOOK_SECONDS


@pytest.mark.parametrize(
    "pages, idle, alive, over",
    [
        (0, 1.0, 1.0, False),
        (0, IDLE_SECONDS + 1, IDLE_SECONDS + 1, True),
        (1, IDLE_SECONDS + 1, IDLE_SECONDS + 1, False),
        (1, 0.0, LIFE_SECONDS + 1, True),
    ],
)
def test_when_it_ends(pages: int, idle: float, alive: float, over: bool) -> None:
    assert is_over(pages, idle, alive) is over


def test_on_loopback_it_has_no_other_name() -> None:
    assert _names(["mac-1.local"], tls=False) == {"localhost"}
    assert {"localhost", "mac-1.local"} < _names(["Mac-1.local"], tls=True)


def test_a_daemon_that_hangs_is_told_before_scrapers_give_up() -> None:
    assert LOOK_ANSWER_SECONDS + LOOK_SECONDS <= 3.0
    assert PROBE_SECONDS + LOOK_ANSWER_SECONDS <= 4.0
