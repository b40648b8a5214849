"""The state of one unit and what to do when something happens to it. Pure: ``now`` is an argument.

    inactive ── start ─▶ activating ── ready ─▶ active
       ▲                  │ ▲    │                │
       │   failure, restart │    │ stop, timeout  │ stop, watchdog
       │                  ▼ │    ▼                ▼
       └─── exited ─── deactivating ◀─────────────┘
                          │
                          └─ restart limit, or no restart ─▶ failed

:func:`step` returns the new status, the actions to perform in order, and the reason, one sentence
that goes to the log and the events as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from elasticd.supervision.unit import Unit

SIGKILL = 9
SIGTERM = 15
_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    8: "SIGFPE",
    SIGKILL: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    SIGTERM: "SIGTERM",
}
"""Those whose numbers are the same on Linux and macOS; the module knows no machine to ask."""


class State(StrEnum):
    """systemd's ``ActiveState``. ACTIVATING without a process waits for its restart."""

    INACTIVE = "inactive"
    ACTIVATING = "activating"
    ACTIVE = "active"
    DEACTIVATING = "deactivating"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Status:
    """Where a unit is.

    Attributes:
        running: a process exists.
        deadline: monotonic seconds at which ``Timer`` is due; None: never.
        starts: when it was started within the limit's interval, oldest first.
        fault: why it is being ended by us (a time-out); empty: because it was asked to stop.
    """

    state: State = State.INACTIVE
    running: bool = False
    deadline: float | None = None
    starts: tuple[float, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class StartUnit:
    """Somebody wants the unit to run; clears an earlier failure."""


@dataclass(frozen=True, slots=True)
class UnitStarted:
    """The process exists."""


@dataclass(frozen=True, slots=True)
class UnitReady:
    """The process says that it is ready (``READY=1``)."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The process gave a sign of life (``WATCHDOG=1``)."""


@dataclass(frozen=True, slots=True)
class Exited:
    """The process ended: exit code, or minus the signal. Also for one that could not be started."""

    status: int


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Somebody wants the unit to end."""


@dataclass(frozen=True, slots=True)
class Timer:
    """``deadline`` may have passed."""


Event = StartUnit | UnitStarted | UnitReady | Watchdog | Exited | StopUnit | Timer


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the process; answer with ``UnitStarted``, or ``Exited`` if that fails."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Send this signal to the process."""

    number: int


Action = Spawn | Signal


@dataclass(frozen=True, slots=True)
class Transition:
    """The new status, what to do, in order, and why; the reason is empty if nothing changed."""

    status: Status
    actions: tuple[Action, ...] = ()
    reason: str = ""


def step(unit: Unit, status: Status, now: float, event: Event) -> Transition:
    """What follows from ``event`` at ``now`` (monotonic seconds)."""
    match event:
        case StartUnit():
            return _start(unit, status, now)
        case UnitStarted():
            return _started(unit, status, now)
        case UnitReady():
            return _ready(unit, status, now)
        case Watchdog():
            if status.state is not State.ACTIVE or unit.watchdog_seconds == 0:
                return Transition(status)
            return Transition(replace(status, deadline=now + unit.watchdog_seconds))
        case Exited(code):
            return _exited(unit, status, now, code)
        case StopUnit():
            return _stop(unit, status, now)
        case Timer():
            return _timer(unit, status, now)
        case _:
            assert_never(event)


def _start(unit: Unit, status: Status, now: float) -> Transition:
    if status.state not in (State.INACTIVE, State.FAILED):
        return Transition(status)
    return _spawn(unit, Status(), now, f"{unit.name} is started")


def _spawn(unit: Unit, status: Status, now: float, reason: str) -> Transition:
    recent = [start for start in status.starts if now - start < unit.limit.interval_seconds]
    status = Status(State.ACTIVATING, starts=(*recent, now))
    return Transition(status, (Spawn(),), reason)


def _started(unit: Unit, status: Status, now: float) -> Transition:
    if status.state is State.DEACTIVATING:  # a stop came between the wish and the process
        return _end(unit, status, now, SIGTERM, status.fault, f"{unit.name} is to stop")
    if status.state is not State.ACTIVATING:
        return Transition(status)
    timeout = unit.start_timeout_seconds
    status = replace(status, running=True, deadline=now + timeout if timeout else None)
    return Transition(status) if unit.notifies else _ready(unit, status, now)


def _ready(unit: Unit, status: Status, now: float) -> Transition:
    if status.state is not State.ACTIVATING or not status.running:
        return Transition(status)
    watchdog = unit.watchdog_seconds
    status = replace(status, state=State.ACTIVE, deadline=now + watchdog if watchdog else None)
    return Transition(status, (), f"{unit.name} is ready")


def _exited(unit: Unit, status: Status, now: float, code: int) -> Transition:
    ended = describe_exit(code)
    if status.state in (State.INACTIVE, State.FAILED):
        return Transition(status)
    if status.state is State.DEACTIVATING and not status.fault:
        return Transition(Status(), (), f"{unit.name} was stopped ({ended})")
    failed = bool(code or status.fault)
    reason = f"{unit.name} {status.fault or ended}"
    if unit.restart == "no" or (unit.restart == "on-failure" and not failed):
        return Transition(Status(State.FAILED if failed else State.INACTIVE), (), reason)
    return _restart(unit, status, now, reason)


def _restart(unit: Unit, status: Status, now: float, reason: str) -> Transition:
    recent = [start for start in status.starts if now - start < unit.limit.interval_seconds]
    if len(recent) >= unit.limit.burst:
        limit = f"{unit.limit.burst} starts in {unit.limit.interval_seconds:g} s"
        return Transition(Status(State.FAILED), (), f"{reason}; not started again: {limit}")
    waiting = Status(
        State.ACTIVATING, deadline=now + unit.restart_delay_seconds, starts=tuple(recent)
    )
    again = f"{reason}; started again in {unit.restart_delay_seconds:g} s"
    return Transition(waiting, (), again)


def _stop(unit: Unit, status: Status, now: float) -> Transition:
    match status.state:
        case State.INACTIVE:
            return Transition(status)
        case State.FAILED:
            return Transition(Status(), (), f"{unit.name} is not wanted any more")
        case State.DEACTIVATING:
            return Transition(replace(status, fault=""))  # it won't be started again
        case State.ACTIVATING if status.deadline is not None and not status.running:
            return Transition(Status(), (), f"{unit.name} is not started again: it is to stop")
        case State.ACTIVATING if not status.running:
            return Transition(replace(status, state=State.DEACTIVATING))
        case State.ACTIVATING | State.ACTIVE:
            return _end(unit, status, now, SIGTERM, "", f"{unit.name} is to stop")
        case _:
            assert_never(status.state)


def _end(
    unit: Unit, status: Status, now: float, number: int, fault: str, reason: str
) -> Transition:
    killed = number == SIGKILL
    status = replace(
        status,
        state=State.DEACTIVATING,
        running=True,
        deadline=None if killed else now + unit.stop_timeout_seconds,
        fault=fault,
    )
    return Transition(status, (Signal(number),), reason)


def _timer(unit: Unit, status: Status, now: float) -> Transition:
    if status.deadline is None or now < status.deadline:
        return Transition(status)
    match status.state:
        case State.ACTIVATING if not status.running:
            return _spawn(unit, status, now, f"{unit.name} is started again")
        case State.ACTIVATING:
            fault = f"was not ready after {unit.start_timeout_seconds:g} s"
            return _end(unit, status, now, SIGTERM, fault, f"{unit.name} {fault}")
        case State.ACTIVE:
            # It hangs, perhaps with the interpreter's lock held: a handler would never run.
            fault = f"gave no sign of life for {unit.watchdog_seconds:g} s"
            return _end(unit, status, now, SIGKILL, fault, f"{unit.name} {fault}")
        case State.DEACTIVATING:
            reason = f"{unit.name} did not end within {unit.stop_timeout_seconds:g} s"
            return _end(unit, status, now, SIGKILL, status.fault, reason)
        case State.INACTIVE | State.FAILED:
            return Transition(replace(status, deadline=None))
        case _:
            assert_never(status.state)


def describe_exit(status: int) -> str:
    """``ended with status 1``, ``was ended by SIGKILL``: exit code, or minus the signal."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {_SIGNALS.get(-status, f'signal {-status}')}"
