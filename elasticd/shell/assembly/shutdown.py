"""That the daemon is to end, or to begin anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from elasticd.errors import ElasticdError, OperationError


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

    async def begin_anew(self, refuse: Callable[[], None]) -> None:
        """Have the process begin anew, unless that would be its end for good: launchd and systemd
        start nothing again that ends of wrong settings.

        Args:
            refuse: raises ElasticdError or OSError, of which it would end. For a thread.

        Raises:
            OperationError: it would end of that, so the daemon goes on.
        """
        try:
            await asyncio.to_thread(refuse)
        except (ElasticdError, OSError) as error:
            raise OperationError(
                f"the daemon goes on as it is, since it could not begin anew: {error}"
            ) from None
        self.ask(again=True)

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.again = False
        self.asked.set()
