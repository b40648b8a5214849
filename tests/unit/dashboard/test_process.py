"""The page's process: when it ends, and by which names it may be asked for."""

from __future__ import annotations

import pytest

from elasticd.dashboard.__main__ import IDLE_SECONDS, LIFE_SECONDS, _names, is_over


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
