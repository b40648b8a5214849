"""Shows that the daemon's loop turns: to systemd, and to who looks for what holds it up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from elasticd.shell.stalls import StallWatch
from elasticd.supervision.notify import Notifier


@dataclass(slots=True)
class LoopPulse:
    """One daemon's."""

    notifier: Notifier = field(default_factory=Notifier.from_environment)
    stalls: StallWatch = field(default_factory=StallWatch)

    async def beat(self) -> None:
        """Tell systemd as often as it wants to know."""
        while (seconds := self.notifier.watchdog_seconds) > 0:
            self.notifier.watchdog()
            await asyncio.sleep(seconds / 2)
