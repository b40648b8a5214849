"""Shows that the daemon's loop turns: to systemd, and to who looks for what holds it up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from elasticd.shell.stalls import StallWatch
from elasticd.shell.tasks import FailureCount
from elasticd.supervision.notify import Notifier

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class LoopPulse:
    """One daemon's."""

    notifier: Notifier = field(default_factory=Notifier.from_environment)
    stalls: StallWatch = field(default_factory=StallWatch)
    failures: FailureCount = field(default_factory=FailureCount)

    def plain(self) -> dict[str, Any]:
        """As ``status --json`` has it."""
        return {**self.stalls.seen.plain(), **self.failures.plain()}

    def uncaught(self, context: Mapping[str, Any]) -> BaseException | None:
        """Log and count what the loop was told; the exception, if that is what it was."""
        error, what = context.get("exception"), str(context.get("message"))
        self.failures.add(what, error)
        log.error("uncaught", what=what, error=repr(error), exc_info=error)
        return error

    async def beat(self) -> None:
        """Tell systemd as often as it wants to know."""
        while (seconds := self.notifier.watchdog_seconds) > 0:
            self.notifier.watchdog()
            await asyncio.sleep(seconds / 2)
