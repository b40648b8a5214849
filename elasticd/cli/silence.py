"""What follows a job or a node goes on while all daemons are away, says so, and gives up once."""

from __future__ import annotations

import time

from elasticd.cli.screen import warn
from elasticd.client.connection import HungUp, NobodyListens
from elasticd.errors import ElasticdError, NoDaemonError

POLL_SECONDS = 0.25
SILENCE_SECONDS = 30.0
"""How long no daemon at all may answer before the command gives up; what it follows doesn't."""


class SilentDaemons:
    """How long they are borne with. ``answered``: one just has; without that not at all."""

    def __init__(self, *, answered: bool, seconds: float = SILENCE_SECONDS) -> None:
        self._answered, self._seconds = answered, seconds
        self._missed_at: float | None = None
        self._told = False

    def heard(self) -> None:
        """A daemon has answered."""
        if self._told:
            warn("a daemon answers again")
        self._answered, self._missed_at, self._told = True, None, False

    def bear(self, error: ElasticdError, then: str = "") -> None:
        """Wait a little after ``error``. It is said once that this is going on; where a single
        daemon has ended, not before another try, as the next one may answer.

        Raises:
            NoDaemonError: none has answered at first, or for too long; ``then`` ends its message.
        """
        now = time.monotonic()
        tried = self._missed_at is not None
        since = now if self._missed_at is None else self._missed_at
        left = self._seconds - (now - since)
        if not self._answered or left < 0:
            raise NoDaemonError(f"{error}{then}") from None
        self._missed_at = since
        gone = isinstance(error, HungUp) or not isinstance(error, NoDaemonError)
        if not self._told and (tried or not gone):
            self._told = True
            nobody = tried or isinstance(error, NobodyListens)
            why = "no daemon answers" if nobody else str(error)
            warn(f"{why}; trying again for {max(left, 1):.0f} s")
        time.sleep(POLL_SECONDS)
