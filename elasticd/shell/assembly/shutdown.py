"""That the daemon is to end."""

from __future__ import annotations

import asyncio


class Shutdown:
    """Whether somebody asked for the end, and what failed if that was why.

    Attributes:
        asked: set once the daemon is to end.
        failure: the first one.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.failure: BaseException | None = None

    def ask(self) -> None:
        self.asked.set()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.asked.set()
