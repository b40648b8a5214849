from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

BOUND_SECONDS = 60.0
"""No wait of these tests is longer; passing takes milliseconds, unless the machine is busy."""


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a coroutine in a loop of its own, bounded in time; what the loop swallows fails the
    test.
    """

    def bounded(main: Coroutine[Any, Any, None]) -> None:
        swallowed: list[dict[str, Any]] = []

        async def body() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: swallowed.append(context))
            async with asyncio.timeout(BOUND_SECONDS):
                await main

        try:
            asyncio.run(body())
        except BaseException as error:
            error.add_note(f"the loop swallowed {swallowed}")
            raise
        assert swallowed == []

    return bounded


@pytest.fixture
def soon_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written into a home is soon taken as whole. Elsewhere than on Linux only time tells
    whether somebody still writes.
    """
    seconds = 0.1 if sys.platform == "linux" else 1.0
    for module in ("storage.quiet", "control.settingswatch", "control.jobsfolder"):
        monkeypatch.setattr(f"elasticd.shell.{module}.QUIET_SECONDS", seconds)
