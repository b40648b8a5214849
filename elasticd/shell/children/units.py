"""Holds one child to the limits of its unit: drives the pure machine with timers and signals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from elasticd.shell.clock import monotonic_seconds
from elasticd.supervision import machine
from elasticd.supervision.unit import Unit

log = structlog.get_logger(__name__)


class RunningUnit:
    """One process of a unit that is not restarted by itself: who wants another starts another.

    ``send_signal`` sends to the process, and does nothing once it has ended.
    """

    def __init__(self, unit: Unit, send_signal: Callable[[int], None]) -> None:
        self._unit = unit
        self._send_signal = send_signal
        self._status = machine.Status()
        self._timer: asyncio.TimerHandle | None = None
        self.tell(machine.StartUnit())

    @property
    def state(self) -> machine.State:
        return self._status.state

    @property
    def late_seconds(self) -> float:
        """It is being ended since it was not up within so long; 0: it isn't."""
        late = self.state is machine.State.DEACTIVATING and self._status.fault
        return self._unit.start_timeout_seconds if late else 0.0

    def tell(self, event: machine.Event) -> None:
        """Take in what happened, and do what follows from it."""
        transition = machine.step(self._unit, self._status, monotonic_seconds(), event)
        self._status = transition.status
        if transition.reason:
            log.debug("unit", reason=transition.reason)
        for action in transition.actions:
            if isinstance(action, machine.Signal):
                self._send_signal(action.number)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._status.deadline is not None:
            delay = max(0.0, self._status.deadline - monotonic_seconds())
            self._timer = asyncio.get_running_loop().call_later(delay, self.tell, machine.Timer())
