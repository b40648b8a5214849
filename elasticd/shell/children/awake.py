"""No machine falls asleep under a rank.

A Mac that nobody uses sleeps after some minutes, whatever it computes. ``caffeinate -i -w PID``
(caffeinate(8)) holds a power assertion against that until the process PID has ended, also if the
daemon dies meanwhile; ``pmset -g assertions`` shows it. Closing a laptop's lid still puts it to
sleep. Elsewhere nothing is held: what runs Linux here are servers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

CAFFEINATE = ("/usr/bin/caffeinate", "-i", "-w")
"""With the pid behind it. -i: not when idle; the display may sleep."""

log = structlog.get_logger(__name__)


def keeper(platform: str = sys.platform) -> tuple[str, ...]:
    """The command that keeps this machine awake for a process; empty: there is none."""
    return CAFFEINATE if platform == "darwin" else ()


@dataclass(frozen=True, slots=True)
class Assertion:
    """What keeps this machine awake until one process has ended."""

    holder: subprocess.Popen[bytes]

    def release(self) -> None:
        """That process has ended, and so has this, or is about to."""
        self.holder.kill()
        self.holder.wait()


@dataclass(frozen=True, slots=True)
class Awake:
    """The port to the system's power assertions."""

    command: Sequence[str] = field(default_factory=keeper)

    def hold(self, pid: int) -> Assertion | None:
        """Stay awake as long as ``pid`` runs; None: that can't be had here."""
        if not self.command:
            return None
        try:
            holder = subprocess.Popen(
                [*self.command, str(pid)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # it outlives a daemon that dies alone, as the rank does
            )
        except OSError as error:
            log.warning("this machine may fall asleep under a rank", pid=pid, reason=str(error))
            return None
        return Assertion(holder)
