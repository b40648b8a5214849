"""That the daemon is to end, or to begin anew."""

from __future__ import annotations

import asyncio


class Shutdown:
    """Whether somebody asked for the end, and what failed if that was why.

    Attributes:
        asked: set once the daemon is to end.
        failure: the first one.
        again: it is to begin anew.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.failure: BaseException | None = None
        self.again = False

    def ask(self, *, again: bool = False) -> None:
        """Who asks for the end gets it, whoever asks for a new beginning before or then."""
        self.again = again and (self.again or not self.asked.is_set())
        self.asked.set()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.again = False
        self.asked.set()
