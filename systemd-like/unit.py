"""A unit: one supervised process and the limits it is held to, in systemd's terms. Pure.

The meanings are those of systemd.service(5) and systemd.unit(5), so that whoever knows these knows
ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Restart = Literal["no", "on-failure", "always"]
"""When a process that ended by itself is started again (``Restart=``)."""


@dataclass(frozen=True, slots=True)
class RestartLimit:
    """At most ``burst`` starts in any ``interval_seconds`` (``StartLimitBurst=``,
    ``StartLimitIntervalSec=``)."""

    burst: int = 5
    interval_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.burst < 1 or self.interval_seconds <= 0:
            raise ValueError("a restart limit needs burst ≥ 1 and interval_seconds > 0")


@dataclass(frozen=True, slots=True)
class Unit:
    """What to run and what is expected of it.

    Attributes:
        name: for people; also in every reason.
        command: program and arguments.
        notifies: it says itself when it is ready (``Type=notify``); otherwise running is enough.
        restart: whether it comes back when it ends by itself.
        restart_delay_seconds: pause before it does (``RestartSec=``).
        limit: how often it may be started.
        start_timeout_seconds: from its start until it is ready (``TimeoutStartSec=``); 0: for ever.
        watchdog_seconds: between two signs of life once it is ready (``WatchdogSec=``); 0: none.
        stop_timeout_seconds: from SIGTERM to SIGKILL (``TimeoutStopSec=``).

    Raises:
        ValueError: no command, or a negative time.
    """

    name: str
    command: tuple[str, ...]
    notifies: bool = True
    restart: Restart = "on-failure"
    restart_delay_seconds: float = 0.1
    limit: RestartLimit = RestartLimit()
    start_timeout_seconds: float = 90.0
    watchdog_seconds: float = 0.0
    stop_timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError(f"{self.name}: no command")
        times = (
            self.restart_delay_seconds,
            self.start_timeout_seconds,
            self.watchdog_seconds,
            self.stop_timeout_seconds,
        )
        if min(times) < 0:
            raise ValueError(f"{self.name}: a negative time")
