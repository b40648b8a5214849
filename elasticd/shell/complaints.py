"""What is said about connections that send what nobody should: counted, and seldom logged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

SAME_REASON_SECONDS = 60.0
"""The same reason of the same source is logged once in so long."""
LINES_PER_MINUTE = 10
MAX_REMEMBERED = 256
MAX_REASON_CHARS = 500
"""A cure of this machine's own is in it whole; what a stranger sends is not."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Complaints:
    """One for each port.

    Attributes:
        port: what the line names: ``peers``, ``children``, ``control``.
        count: all that was ever complained of.
        last_reason: ``source: reason`` of the newest.
    """

    port: str
    clock: Callable[[], float] = time.monotonic
    count: int = 0
    last_reason: str = ""
    _unsaid: int = 0
    _minute: float = float("-inf")
    _lines: int = 0
    _said: dict[tuple[str, str], float] = field(default_factory=dict)

    def __call__(self, source: str, reason: str) -> None:
        """Count, and log unless that was said lately or too much was said in this minute.

        A line that is logged tells how many before it were not.
        """
        source, reason = source[:MAX_REASON_CHARS], reason[:MAX_REASON_CHARS]
        self.count += 1
        self.last_reason = f"{source}: {reason}"
        now = self.clock()
        if now - self._minute >= 60.0:
            self._minute, self._lines = now, 0
        lately = now - self._said.get((source, reason), float("-inf")) < SAME_REASON_SECONDS
        if lately or self._lines >= LINES_PER_MINUTE:
            self._unsaid += 1
            return
        self._lines += 1
        if len(self._said) >= MAX_REMEMBERED:
            self._said.clear()
        self._said[(source, reason)] = now
        unsaid, self._unsaid = self._unsaid, 0
        log.warning(
            "connection refused",
            port=self.port,
            source=source,
            reason=reason,
            count=self.count,
            unsaid=unsaid,
        )
